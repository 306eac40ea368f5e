package credstore

import (
	"errors"
	"fmt"
)

// What can be wrong, for [errors.Is]. Each error's text is one sentence that
// says what happened to what, and the next step. None holds a secret.
var (
	// ErrName: the target's name is not one of ours.
	ErrName = errors.New("bad target name")
	// ErrOverride: the environment variable that overrides the target's
	// token is set and unusable; it never falls through to the store.
	ErrOverride = errors.New("bad override")
	// ErrConfig: the target's settings cannot be read, are missing where they
	// are needed, or contradict themselves.
	ErrConfig = errors.New("bad configuration")
	// ErrUnknownTarget: the name is neither configured nor was it ever signed
	// in to. It is also an ErrNoCredential.
	ErrUnknownTarget = errors.New("unknown target")
	// ErrNoCredential: nothing is stored for the target.
	ErrNoCredential = errors.New("no credential")
	// ErrLoginRequired: what is stored cannot give a token any more. The
	// record is kept.
	ErrLoginRequired = errors.New("login required")
	// ErrOutcomeUnknown: an earlier exchange of the refresh token ended
	// without an answer and the token is refused now. It is also an
	// ErrLoginRequired.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrTemporary: the authorization server gave no usable answer; trying
	// again later may help. Nothing was lost.
	ErrTemporary = errors.New("temporary failure")
	// ErrMinValid: no token is valid for as long as was asked.
	ErrMinValid = errors.New("not valid long enough")
	// ErrRequest: the server says that our request or registration is wrong.
	ErrRequest = errors.New("request refused")
	// ErrDamaged: a file is not what it must be. It was left untouched.
	ErrDamaged = errors.New("damaged file")
	// ErrKey: a file is sealed and its key cannot be had. It was left
	// untouched.
	ErrKey = errors.New("key not to be had")
	// ErrUnsafe: a file or directory is not ours, or others may change it.
	ErrUnsafe = errors.New("unsafe file")
	// ErrNotWritable: the result of a refresh could not have been saved, so
	// nothing was sent.
	ErrNotWritable = errors.New("store not writable")
	// ErrNotSaved: an exchange succeeded and its result could not be saved.
	// The token that came with the error is valid.
	ErrNotSaved = errors.New("not saved")
	// ErrLocked: the lock was not obtained; the tree holds the
	// [lockfile.HeldError] with the holder, where one is known.
	ErrLocked = errors.New("locked")
	// ErrTaken: the target has a session or token, and only a target without
	// was to get one.
	ErrTaken = errors.New("target taken")
	// ErrRejected: the resource server refuses what the authorization server
	// issues.
	ErrRejected = errors.New("rejected by the resource server")
)

// fault is an error with a sentence of its own and the kind and cause behind
// it.
type fault struct {
	text  string
	kinds []error
}

func (f *fault) Error() string   { return f.text }
func (f *fault) Unwrap() []error { return f.kinds }

// failing makes an error of the given kind; causes are reachable by
// errors.Is and errors.As and not printed.
func failing(kind error, causes []error, format string, args ...any) error {
	return &fault{fmt.Sprintf(format, args...), append([]error{kind}, causes...)}
}

// CheckName returns [ErrName], with what a name must be, unless target is a
// [ValidName].
func CheckName(target string) error {
	if ValidName(target) {
		return nil
	}
	return failing(ErrName, nil, "%.80q is no target name: use letters, digits, '.', '_' and '-', up to 64, starting with a letter or digit", target)
}
