//go:build linux

package ledger

// ErrInvalid is what a caller's fault gives.
var ErrInvalid = errInvalid

// Reserialized reads the bytes of a state file and writes the state that they
// hold.
func Reserialized(file []byte) ([]byte, error) {
	s, err := parseState(file, Config{}.withDefaults().limits())
	if err != nil {
		return nil, err
	}
	return appendState(nil, s), nil
}
