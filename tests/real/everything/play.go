package everything

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Way is how a client reaches a server: by HTTP with a token, or by a program
// that it starts and talks to over standard input and output.
type Way struct {
	Kind  Kind
	URL   string
	Token string

	Command []string
	Env     []string

	// Patience bounds what a scenario waits for, 30 s if 0.
	Patience time.Duration
}

func (w Way) patience() time.Duration {
	if w.Patience == 0 {
		return 30 * time.Second
	}
	return w.Patience
}

//go:embed drive.mjs
var driveScript []byte

// PlayTypeScript has the official TypeScript client do all that it can. An
// error is one of the test's own; what the client is not content with is in the
// transcript.
func PlayTypeScript(ctx context.Context, way Way) (Transcript, error) {
	script, err := place(ctx, "drive.mjs", driveScript)
	if err != nil {
		return Transcript{}, err
	}
	env := map[string]string{}
	for _, pair := range way.Env {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	settings, err := json.Marshal(map[string]any{
		"kind": way.Kind, "url": way.URL, "token": way.Token, "command": way.Command, "env": env,
		"patience_ms": way.patience().Milliseconds(),
	})
	if err != nil {
		return Transcript{}, err
	}
	node := exec.CommandContext(ctx, "node", script)
	var stdout bytes.Buffer
	var stderr output
	node.Stdin, node.Stdout, node.Stderr = bytes.NewReader(settings), &stdout, &stderr
	node.WaitDelay = time.Second // a proxy that outlives its client holds our pipe
	if err := node.Run(); err != nil {
		return Transcript{}, fmt.Errorf("the TypeScript client: %w\n%s", err, stderr.String())
	}
	t := Transcript{Log: stderr.String()}
	for line := range bytes.Lines(stdout.Bytes()) {
		var said struct {
			Scenario string          `json:"scenario"`
			Dir      string          `json:"dir"`
			Message  json.RawMessage `json:"message"`
			Error    string          `json:"error"`
		}
		if err := json.Unmarshal(line, &said); err != nil {
			return t, fmt.Errorf("the TypeScript client said %q: %w", line, err)
		}
		if said.Dir == "" {
			t.Outcomes = append(t.Outcomes, Outcome{said.Scenario, said.Error})
		} else {
			t.Messages = append(t.Messages, Message{said.Scenario, said.Dir, string(said.Message)})
		}
	}
	return t, nil
}
