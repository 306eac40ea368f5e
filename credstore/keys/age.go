package keys

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"filippo.io/age"

	"github.com/spendonce/spendonce/internal/sealed"
	"github.com/spendonce/spendonce/internal/secret"
)

// maxIdentities bounds what is read of a file with identities.
const maxIdentities = 1 << 20

// wrap encrypts the key to the recipients of all identities in the file and
// to further ones.
func wrap(key sealed.Key, identities string, further []string) (sealed.Ref, error) {
	ids, err := readIdentities(identities)
	if err != nil {
		return sealed.Ref{}, err
	}
	var to []age.Recipient
	for _, id := range ids {
		switch id := id.(type) {
		case *age.X25519Identity:
			to = append(to, id.Recipient())
		case *age.HybridIdentity:
			to = append(to, id.Recipient())
		default:
			return sealed.Ref{}, fmt.Errorf("%s holds an identity of a kind that nothing can be encrypted to", identities)
		}
	}
	for i, one := range further {
		more, err := age.ParseRecipients(strings.NewReader(one))
		if err != nil || len(more) != 1 { // the error may quote what somebody took for a recipient
			return sealed.Ref{}, fmt.Errorf("number %d of the store's recipients is no age recipient (age1...): correct it in the configuration", i+1)
		}
		to = append(to, more...)
	}
	var wrapped bytes.Buffer
	w, err := age.Encrypt(&wrapped, to...)
	if err == nil {
		_, err = io.WriteString(w, key.Text().Reveal())
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return sealed.Ref{}, fmt.Errorf("encrypting the store's key to its recipients: %w", err)
	}
	if wrapped.Len() > sealed.MaxWrapped {
		return sealed.Ref{}, fmt.Errorf("the store's key, encrypted to %d recipients, is larger than 64 KiB: name fewer", len(to))
	}
	return sealed.Ref{Kind: KindAge, ID: key.ID(), Wrapped: wrapped.Bytes()}, nil
}

// unwrap decrypts the key in the header with the identities that are
// configured.
func (k *Keys) unwrap(ref sealed.Ref) (sealed.Key, error) {
	c, err := k.config()
	if err != nil {
		return sealed.Key{}, err
	}
	var files []string
	if path, ok := strings.CutPrefix(c.Key, "age:"); ok {
		files = append(files, path)
	}
	files = append(files, c.Identities...)
	if len(files) == 0 {
		return sealed.Key{}, errors.New(`it needs an age identity and the configuration names none: set key = "age:FILE" under [store]`)
	}
	var ids []age.Identity
	for _, path := range files {
		of, err := readIdentities(path)
		if err != nil {
			return sealed.Key{}, err
		}
		ids = append(ids, of...)
	}
	r, err := age.Decrypt(bytes.NewReader(ref.Wrapped), ids...)
	var none *age.NoIdentityMatchError
	switch {
	case errors.As(err, &none):
		return sealed.Key{}, fmt.Errorf("none of the identities in %s opens it: name the one that it was sealed to", strings.Join(files, ", "))
	case err != nil:
		return sealed.Key{}, errors.New("the wrapped key in its header is damaged")
	}
	text, err := io.ReadAll(io.LimitReader(r, 1<<10))
	if err != nil {
		return sealed.Key{}, errors.New("the wrapped key in its header is damaged")
	}
	return sealed.ParseKey(secret.New(string(text)))
}

func readIdentities(path string) ([]age.Identity, error) {
	// Non-blocking: a pipe that nobody writes to is empty, and does not hang.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("the age identity cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxIdentities+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the age identity cannot be read: %w", err)
	case len(b) > maxIdentities:
		return nil, fmt.Errorf("the age identity file %s is larger than 1 MiB", path)
	case bytes.HasPrefix(b, []byte("age-encryption.org/")), bytes.HasPrefix(b, []byte("-----BEGIN AGE ENCRYPTED FILE-----")):
		return nil, fmt.Errorf("the age identity file %s is protected by a passphrase, which no background process can be asked for: "+
			"use one without (age-keygen -o FILE), or the keyring", path)
	case bytes.HasPrefix(b, []byte("-----BEGIN ")):
		return nil, fmt.Errorf("%s is no file of age identities: SSH and PEM keys cannot be used, make one with age-keygen -o FILE", path)
	}
	ids, err := age.ParseIdentities(bytes.NewReader(b))
	if err != nil { // the error may tell of the key
		return nil, fmt.Errorf("%s is no file of age identities (AGE-SECRET-KEY-..., one a line)", path)
	}
	return ids, nil
}
