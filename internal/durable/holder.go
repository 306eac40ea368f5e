package durable

// Holder is the process that has a kernel lock. It serves messages only: by
// the time they are read it may be another one.
type Holder struct {
	PID     int // 0 if unknown
	Name    string
	Stopped bool // by a signal: it goes on when it is continued
}
