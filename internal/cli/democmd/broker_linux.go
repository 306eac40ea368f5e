//go:build linux

package democmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/lease"
)

const binding = `{"compaction_epoch":0,"request_epoch":1,"h_source":"sha256:a1","h_payload":"sha256:b2","schema_version":1}`

// cast is who plays in the scenes of the broker: a broker, and an agent that
// is an anchor. Both are processes of this program, and our children.
type cast struct {
	*stage
	broker  *exec.Cmd
	agent   *exec.Cmd
	orders  *os.File // to the agent
	reports *os.File // of the agent
	answers *json.Decoder
	session string // its id
}

// brokerScenes are the scenes of the broker and what ends its processes.
func brokerScenes(st *stage) (scenes []play, end func()) {
	c := &cast{stage: st}
	return []play{c.replay, c.stranger, c.crowd, c.brokerCrash, c.anchorExit}, c.end
}

func (c *cast) end() {
	for _, f := range []*os.File{c.orders, c.reports} {
		_ = f.Close() // which a nil file survives
	}
	for _, cmd := range []*exec.Cmd{c.agent, c.broker} {
		if cmd != nil && cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
}

// errNotHere says that a broker would not trust this machine.
var errNotHere = errors.New("the broker does not start here")

// startBroker returns when requests are accepted.
func (c *cast) startBroker(ctx context.Context) error {
	cmd := c.child(ctx, "lease", "serve")
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL} // if we are killed; the others wait for input, and get its end
	talk, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	c.broker = cmd
	line, _ := bufio.NewReader(talk).ReadString('\n')
	if strings.Contains(line, "listens at") {
		return nil
	}
	said := strings.TrimPrefix(strings.TrimSpace(line), "spendonce: ")
	err = cmd.Wait()
	if cmd.ProcessState.ExitCode() == 6 { // it looked around and left
		return fmt.Errorf("%w: %s", errNotHere, said)
	}
	return fmt.Errorf("starting a broker: %w: %s", err, said)
}

// startAgent makes an agent the anchor of a session, and learns its id.
func (c *cast) startAgent(ctx context.Context) error {
	in, orders, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	c.orders = orders
	reports, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	c.reports, c.answers = reports, json.NewDecoder(reports)
	var talk strings.Builder
	cmd := c.child(ctx, "lease", "run", "--no-start", "--", c.self, "demo", "agent")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &talk
	if err := cmd.Start(); err != nil {
		return err
	}
	c.agent = cmd
	_ = out.Close() // or its end would not be seen
	if err := c.answers.Decode(&c.session); err != nil {
		err = errors.Join(err, cmd.Wait())
		return fmt.Errorf("starting an agent: %w: %s", err, lastLine([]byte(talk.String())))
	}
	return nil
}

// members has the agent start processes, which are members of its session.
func (c *cast) members(times int, input string, args ...string) (results []result, err error) {
	if err = json.NewEncoder(c.orders).Encode(order{Args: args, Input: input, Times: times}); err == nil {
		err = c.answers.Decode(&results)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the agent: %w", err)
	}
	if len(results) != times {
		return nil, fmt.Errorf("%d of %d processes were started", len(results), times)
	}
	return results, nil
}

// mint returns a new token of the agent's session.
func (c *cast) mint() (string, error) {
	r, err := c.members(1, binding, "lease", "mint")
	if err == nil && r[0].Code != 0 {
		err = errors.New(r[0].Talk)
	}
	if err != nil {
		return "", fmt.Errorf("minting a token: %w", err)
	}
	return r[0].Out, nil
}

// consume has one member spend a token.
func (c *cast) consume(token string) (result, error) {
	r, err := c.members(1, token, "lease", "consume")
	if err != nil {
		return result{}, err
	}
	return r[0], nil
}

// replay starts everybody; without this scene there are no others.
func (c *cast) replay(ctx context.Context) scene {
	const asked = "a member mints a token and consumes it twice"
	if err := c.startBroker(ctx); errors.Is(err, errNotHere) {
		return scene{Asked: asked, Happened: err.Error(), OK: true, Skipped: true}
	} else if err != nil {
		return wrong(asked, err)
	}
	if err := c.startAgent(ctx); err != nil {
		return wrong(asked, err)
	}
	token, err := c.mint()
	if err != nil {
		return wrong(asked, err)
	}
	first, err := c.consume(token)
	if err != nil {
		return wrong(asked, err)
	}
	second, err := c.consume(token)
	if err != nil {
		return wrong(asked, err)
	}
	return outcome(asked,
		granted("first", first),
		fact{"same binding", first.Out == binding},
		refused("second", second, lease.ErrTokenReplay))
}

// stranger is a process that has everything but the descent.
func (c *cast) stranger(ctx context.Context) scene {
	const asked = "a stranger has the session's id and a token"
	token, err := c.mint()
	if err != nil {
		return wrong(asked, err)
	}
	results, err := together(order{Input: token, Times: 1}, func() *exec.Cmd {
		cmd := c.child(ctx, "lease", "consume")
		cmd.Env = append(cmd.Env, lease.SessionVariable+"="+c.session, lease.GenerationVariable+"=0")
		return cmd
	})
	if err != nil {
		return wrong(asked, err)
	}
	then, err := c.consume(token)
	if err != nil {
		return wrong(asked, err)
	}
	return outcome(asked, refused("stranger", results[0], lease.ErrNotDescendant), granted("then a member", then))
}

func (c *cast) crowd(context.Context) scene {
	asked := fmt.Sprintf("%d processes consume one token at once", crowd)
	token, err := c.mint()
	if err != nil {
		return wrong(asked, err)
	}
	results, err := c.members(crowd, token, "lease", "consume")
	if err != nil {
		return wrong(asked, err)
	}
	ok, replays := 0, 0
	for _, r := range results {
		switch {
		case r.Code == 0 && r.Out == binding:
			ok++
		case r.refused(lease.ErrTokenReplay):
			replays++
		}
	}
	return outcome(asked, counted(ok, 1, "ok", "ok"), counted(replays, crowd-1, "TOKEN_REPLAY", "TOKEN_REPLAY"))
}

// brokerCrash kills the broker and starts another one on what is on the disk.
func (c *cast) brokerCrash(ctx context.Context) scene {
	const asked = "the broker killed (kill -9), then another one"
	spent, err := c.mint()
	if err != nil {
		return wrong(asked, err)
	}
	pending, err := c.mint()
	if err != nil {
		return wrong(asked, err)
	}
	if first, err := c.consume(spent); err != nil || first.Code != 0 {
		return wrong(asked, errors.Join(err, errors.New(first.Talk)))
	}
	if err := c.broker.Process.Kill(); err != nil {
		return wrong(asked, err)
	}
	_ = c.broker.Wait() // it was killed
	if err := c.startBroker(ctx); err != nil {
		return wrong(asked, err)
	}
	again, err := c.consume(spent)
	if err != nil {
		return wrong(asked, err)
	}
	kept, err := c.consume(pending)
	if err != nil {
		return wrong(asked, err)
	}
	return outcome(asked, refused("spent token", again, lease.ErrTokenReplay), granted("pending", kept))
}

// anchorExit ends the agent while a process that it started, and that has a
// token, still runs.
func (c *cast) anchorExit(context.Context) scene {
	const asked = "the anchor exits, a member that outlives it asks"
	token, err := c.mint()
	if err != nil {
		return wrong(asked, err)
	}
	if err := json.NewEncoder(c.orders).Encode(order{Args: []string{"lease", "consume"}, Leave: true}); err != nil {
		return wrong(asked, err)
	}
	if err := c.agent.Wait(); err != nil {
		return wrong(asked, fmt.Errorf("the agent: %w", err))
	}
	_, err = io.WriteString(c.orders, token)
	if err := errors.Join(err, c.orders.Close()); err != nil {
		return wrong(asked, fmt.Errorf("handing over the token: %w", err))
	}
	said, err := io.ReadAll(io.MultiReader(c.answers.Buffered(), c.reports))
	if err != nil {
		return wrong(asked, err)
	}
	return outcome(asked, refused("member", result{Code: -1, Talk: lastLine(said)}, lease.ErrSessionUnknown))
}

// granted is the fact that who was told ok.
func granted(who string, r result) fact {
	if r.Code != 0 {
		return fact{who + ": " + r.Talk, false}
	}
	return fact{who + ": ok", true}
}

// refused is the fact that who was told no, and why.
func refused(who string, r result, code lease.Refusal) fact {
	switch {
	case r.refused(code):
		return fact{who + ": " + string(code), true}
	case r.Code == 0:
		return fact{who + ": ok", false}
	default:
		return fact{who + ": " + r.Talk, false}
	}
}

// hiddenCommands are what the demo's own processes run.
func hiddenCommands() []*cobra.Command {
	return []*cobra.Command{naiveClientCommand(), agentCommand()}
}
