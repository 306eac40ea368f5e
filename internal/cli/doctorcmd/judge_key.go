package doctorcmd

import (
	"errors"

	"github.com/spendonce/spendonce/credstore"
)

// judgeKey says how the store is kept at rest, and whether its key is to be
// had.
func judgeKey(f findings, r credstore.Report) {
	const id = "store.key"
	mixed := 0
	for _, t := range r.Targets {
		if t.SessionExists && t.Err == nil && (t.SessionSeal.Kind != r.Seal.Kind || t.SessionSeal.Key != r.Seal.Key) {
			mixed++
		}
	}
	switch {
	case errors.Is(r.StoreErr, credstore.ErrKey):
		f.find(failure, id, "make the key available (unlock the keyring, run this in your session, restore the identity); move the store aside only if the key is lost", "%v", r.StoreErr)
	case r.SealErr != nil: // said of the configuration
	case r.StoreErr != nil || !r.Exists:
	case mixed > 0:
		next := "spendonce store encrypt"
		if r.Seal.Kind == "" {
			next = "spendonce store encrypt, or spendonce store decrypt"
		}
		f.find(warning, id, next, "%s kept otherwise than the store: a change of its form was cut short", many(mixed, "session file"))
	case r.Seal.Kind == "" && r.NewSeal != "":
		f.find(warning, id, "spendonce store encrypt", "the configuration names a key of the kind %s and the store is in plain", r.NewSeal)
	case r.Seal.Kind == "":
		f.ok(id, "the store is in plain, protected by its mode")
	case r.NewSeal != "" && r.NewSeal != r.Seal.Kind:
		f.find(note, id, "spendonce store rekey", "the store is encrypted with a key of the kind %s and the configuration names %s", r.Seal.Kind, r.NewSeal)
	default:
		f.ok(id, "the store is encrypted, and its %s key %s can be had", r.Seal.Kind, r.Seal.Key[:8])
	}
}

// judgeIdentity says what makes an age key worth less than it could be.
func judgeIdentity(f findings, id identity) {
	const check = "store.identity"
	if id.mode&0o077 != 0 {
		f.find(warning, check, "chmod 600 "+id.path+"; if others use this machine, make another one and 'spendonce store rekey'",
			"%s has mode %04o, so others may have read the age identity that opens the store", id.path, id.mode)
	}
	if id.beside {
		f.find(warning, check, "move it elsewhere, and name that place as key under [store] in the configuration",
			"%s lies beside the store that it opens: whoever copies the one has the other", id.path)
	}
	if id.path != "" && id.mode&0o077 == 0 && !id.beside {
		f.ok(check, "%s is yours alone and lies elsewhere than the store", id.path)
	}
}
