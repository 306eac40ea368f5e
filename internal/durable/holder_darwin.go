package durable

// Holder: macOS does not tell who holds a flock.
func (k *Kept) Holder() (held bool, by Holder, unsure bool) { return false, Holder{}, true }
