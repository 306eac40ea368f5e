//go:build linux

package conformance

// An actor is told what to do by lines of JSON, one order each, and answers
// each with one line, a reply. It begins with a reply of its own accord.

// order is one thing to do. Which fields count depends on Do.
type order struct {
	Do string `json:"do"`

	// Conn is the name by which the actor knows a connection to the broker.
	Conn string `json:"conn,omitempty"`

	// talk does those of the following that are set, in this order.
	Socket string  `json:"socket,omitempty"`  // connect
	AsUser int     `json:"as_user,omitempty"` // while connecting
	Chunks []chunk `json:"chunks,omitempty"`  // write
	Shut   bool    `json:"shut,omitempty"`    // half-close
	Peek   int     `json:"peek,omitempty"`    // wait so many ms for an answer without reading it
	Read   int     `json:"read,omitempty"`    // read to the end, for at most so many ms
	Close  bool    `json:"close,omitempty"`

	// volley writes each frame on a connection of its own, then half-closes
	// all of them, then reads (Read) all answers.
	Frames [][]byte `json:"frames,omitempty"`

	// spawn starts Argv (the path first, then the arguments with argv[0]) as
	// a child that is named Name to Control; with Conn, that connection is its
	// descriptor 3; with Namespace in a pid namespace of its own. exec becomes
	// Argv. give and take pass Conn to and from Control under Name.
	Argv      []string `json:"argv,omitempty"`
	Control   string   `json:"control,omitempty"`
	Name      string   `json:"name,omitempty"`
	Namespace bool     `json:"namespace,omitempty"`

	// wait reaps the child Pid.
	Pid int `json:"pid,omitempty"`
}

const (
	doTalk      = "talk"
	doVolley    = "volley"
	doSpawn     = "spawn"
	doExec      = "exec"
	doGive      = "give"
	doTake      = "take"
	doAdopt     = "adopt" // Conn is descriptor 3
	doWait      = "wait"
	doLook      = "look" // say pid and parent
	doSubreaper = "subreaper"
	doExit      = "exit"
)

// chunk is one write.
type chunk struct {
	Data []byte `json:"data"`
	// Pause is how many ms to wait before it. An answer that comes meanwhile
	// ends the pause and all writing.
	Pause int `json:"pause,omitempty"`
	// Descriptor sends a descriptor along.
	Descriptor bool `json:"descriptor,omitempty"`
}

// reply is what became of an order.
type reply struct {
	// Failed says that the actor could not do its part. What the broker did
	// is in Heard.
	Failed string  `json:"failed,omitempty"`
	Pid    int     `json:"pid,omitempty"` // its own; after spawn the child's
	Parent int     `json:"parent,omitempty"`
	Heard  []heard `json:"heard,omitempty"`
}

// heard is what came from the broker on one connection.
type heard struct {
	Raw []byte `json:"raw"`
	// End says how it ended: one of the constants below, or an error's text.
	End string `json:"end"`
	// Sent is the error of a write, if one failed.
	Sent string `json:"sent,omitempty"`
	// Took is the time in ms from before the connect to the end.
	Took int64 `json:"took"`
}

const (
	endEOF    = "eof"
	endReset  = "reset"
	endSilent = "silence" // nothing more within the time
	endUnread = "unread"  // was not read
)

// process is somebody who can talk to the broker: an actor, or the kit.
type process interface {
	do(order) reply
}
