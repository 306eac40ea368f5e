package mcpproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/spendonce/spendonce/bearer"
)

// Wire is a way in which servers speak over HTTP.
type Wire int

const (
	// AnyWire is StreamableHTTP, or HTTPWithSSE if the server refuses the
	// first message as one that has only that.
	AnyWire Wire = iota
	// StreamableHTTP is that of revision 2025-03-26 and later.
	StreamableHTTP
	// HTTPWithSSE is that of revision 2024-11-05.
	HTTPWithSSE
)

// Config describes a [Proxy]. URL, or Locate, and Transport must be set.
type Config struct {
	// Target names the server in messages.
	Target string
	// URL is the server's MCP endpoint: https, or http on a loopback address.
	URL string
	// Locate is asked for the URL, if that is empty, until it knows; the error
	// is that of the request which needs it. It may be called concurrently.
	Locate func() (string, error)
	// Transport sends the requests, with a token where that is wanted: a
	// bearer.Transport, whose Origins bound where it goes. It must leave
	// bodies as they are.
	Transport http.RoundTripper
	// Header is sent with every request, beside what the protocol sends.
	Header http.Header
	Wire   Wire
	// Log is told what happens, never what is in a message; nil: nobody.
	Log *slog.Logger
	// Gone, if set, reports whether the client has ended its side though not all
	// that it said was read. It is asked from time to time while nothing more
	// can be taken.
	Gone func() bool
	// Settle, if set, returns when what must not be cut short has ended: the
	// exchange of a token. It is called once, when the client has gone.
	Settle func()
	// Trim, if set, is called some time after a message of more than a MiB:
	// memory that was needed for it may be given back.
	Trim   func()
	Limits Limits
}

// Limits are the bounds of a [Proxy]; a zero is the default in brackets.
type Limits struct {
	Message  int           // of a message, in bytes [64 MiB]
	InFlight int           // requests of the client [4096]
	Notify   time.Duration // for the server to take a notification or response [30 s]
	Pause    time.Duration // before a cut stream is asked for again; doubles, up to 30 times that [1 s]
	Grace    time.Duration // for answers, when the client has nothing more to say [400 ms]
	Leave    time.Duration // to tell the server that the session has ended [400 ms]
	Linger   time.Duration // for a stream to end after its answer [5 s]
	Hold     time.Duration // from which on a stream that was open and brought nothing is no failure [10 s]
	Open     time.Duration // for an HTTPWithSSE server to say where its endpoint is [30 s]
	Trim     time.Duration // without a long message, until memory may be given back [1 s]
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Message: cmp.Or(l.Message, 64<<20), InFlight: cmp.Or(l.InFlight, 4096), Notify: cmp.Or(l.Notify, 30*time.Second),
		Pause: cmp.Or(l.Pause, time.Second), Grace: cmp.Or(l.Grace, 400*time.Millisecond), Leave: cmp.Or(l.Leave, 400*time.Millisecond),
		Linger: cmp.Or(l.Linger, 5*time.Second), Open: cmp.Or(l.Open, 30*time.Second), Hold: cmp.Or(l.Hold, 10*time.Second),
		Trim: cmp.Or(l.Trim, time.Second),
	}
}

const (
	// longMessage is from where on only longMessages of them are held at once
	// of what servers send.
	longMessage, longMessages = 1 << 20, 4
	// heldMessages limits of a message are held at once of what was not sent.
	heldMessages = 4
	laneLength   = 16 << 10
)

// Proxy carries messages between one client and one server.
type Proxy struct {
	cfg Config
	lim Limits
	log *slog.Logger

	mu    sync.Mutex
	known *place
}

// place is where the server is.
type place struct {
	url    *url.URL
	origin bearer.Origin
}

func placeAt(raw string) (*place, error) {
	u, err := url.Parse(raw)
	if err != nil || u.User != nil {
		return nil, bearer.ErrNotAnOrigin
	}
	origin, err := bearer.OriginOf(u)
	u.Fragment, u.RawFragment = "", ""
	return &place{u, origin}, err
}

// place returns where the server is, if that is known by now.
func (p *Proxy) place() (*place, error) {
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if known != nil {
		return known, nil
	}
	raw, err := p.cfg.Locate()
	if err == nil {
		known, err = placeAt(raw)
	}
	if err != nil {
		return nil, err
	}
	p.log.Info("the server is known", "server", known.origin.String())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = known
	return known, nil
}

// New returns a Proxy.
func New(cfg Config) (*Proxy, error) {
	p := &Proxy{cfg: cfg, lim: cfg.Limits.withDefaults(), log: cfg.Log}
	switch {
	case cfg.Transport == nil:
		return nil, errors.New("a proxy needs a transport")
	case cfg.URL != "":
		var err error
		if p.known, err = placeAt(cfg.URL); err != nil {
			return nil, fmt.Errorf("the URL of %s is not that of a server: %w", cfg.Target, err)
		}
	case cfg.Locate == nil:
		return nil, errors.New("a proxy needs to know where the server is")
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	return p, nil
}

// errClientGone ends what is under way when nobody waits for it any more.
var errClientGone = errors.New("the client has gone")

// run is one connection of a client.
type run struct {
	*Proxy
	ctx    context.Context // ends what is under way
	cancel context.CancelCauseFunc
	out    *output
	held   *semaphore.Weighted // bytes of messages to the server
	long   *semaphore.Weighted // long messages of it
	lane   chan laneItem
	work   sync.WaitGroup
	crew   crew
	trim   *time.Timer
	served pulse

	flights  flights
	sessions sessions
	tools    tools

	gate <-chan struct{} // the reader's: closed when what comes next may be sent
	gone chan struct{}   // one slot: the client has, and the reader is stuck
}

// Run carries messages until the client ends its side (in ends), ctx ends or
// out cannot be written to; that last one is its only error beside one of
// reading. It then ends the session at the server, within Grace and Leave of
// [Limits], and returns. A Read that is under way when ctx ends is left
// behind, and a Write that blocks.
//
// Requests are sent as they come, each by itself; all else goes in the order
// in which it came, but for cancellations, which overtake. What comes after an
// initialize request waits for its answer.
func (p *Proxy) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	open := make(chan struct{})
	close(open)
	r := &run{
		Proxy: p, gate: open, gone: make(chan struct{}, 1), lane: make(chan laneItem, laneLength),
		held: semaphore.NewWeighted(int64(heldMessages) * int64(p.lim.Message)), long: semaphore.NewWeighted(longMessages),
	}
	r.crew = newCrew()
	r.trim = time.AfterFunc(math.MaxInt64, p.cfg.Trim) // until there is a reason
	defer r.trim.Stop()
	r.sessions.renewing = make(chan struct{}, 1)
	// The end of ctx ends the run, which then ends what is under way.
	r.ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	defer r.cancel(errClientGone)
	failed := make(chan error, 1)
	r.out = newOutput(out, func(err error) { failed <- err })
	r.work.Go(r.runLane)
	read := make(chan error, 1)
	go func() { read <- r.read(in) }()

	p.log.Info("started", "target", p.cfg.Target)
	var err error
	select {
	case err = <-read:
		select {
		case err = <-failed: // which ended the reading too
		default:
			p.log.Info("the client has ended its side")
			read <- nil
			r.grace(ctx, read)
		}
	case <-r.gone:
		p.log.Info("the client has ended its side, and not all that it said was taken")
		r.grace(ctx, read)
	case err = <-failed:
	case <-ctx.Done():
		p.log.Info("told to end")
	}
	r.leave()
	return err
}

// grace lets what is under way end by itself, for a short while; read is what
// comes of the reading.
func (r *run) grace(ctx context.Context, read <-chan error) {
	ctx, cancel := context.WithTimeout(ctx, r.lim.Grace)
	defer cancel()
	r.sessions.stopListening()
	select {
	case <-read: //nolint:errcheck // the client has gone, whatever that says
	case <-ctx.Done():
		return
	}
	done := make(chan struct{})
	select {
	case r.lane <- laneItem{last: done}:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
		return
	}
	select {
	case <-r.flights.idle():
	case <-ctx.Done():
	}
}

// leave ends everything, the session at the server too.
func (r *run) leave() {
	r.cancel(errClientGone)
	if r.cfg.Settle != nil {
		r.cfg.Settle()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.lim.Leave)
	defer cancel()
	r.endSession(ctx)
	done := make(chan struct{})
	go func() {
		r.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	if t, ok := r.cfg.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	r.log.Info("ended")
}

// read dispatches what the client says.
func (r *run) read(in io.Reader) error {
	lines := newLineReader(in, r.lim.Message)
	for {
		line, long, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("the client's messages cannot be read: %w", err)
		case long != nil:
			r.log.Warn("a message of the client is longer than the limit", "limit", r.lim.Message)
			if long.kind() != kindNotification && long.kind() != kindResponse {
				err = r.refuse(long.id, tooLong(r.lim.Message))
			}
		default:
			r.trimAfter(line)
			err = r.dispatch(line)
		}
		if err != nil {
			return nil //nolint:nilerr // of writing, or of the end: the run knows
		}
	}
}

// lookEvery is how often a client is looked at whose messages cannot be taken.
const lookEvery = 100 * time.Millisecond

// stuck has it noticed that the client goes while the reader waits. Its result
// ends that.
func (r *run) stuck() (stop func()) {
	if r.cfg.Gone == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(r.ctx)
	r.work.Go(func() {
		look := time.NewTicker(lookEvery)
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			}
			if r.cfg.Gone() {
				select {
				case r.gone <- struct{}{}:
				default:
				}
				return
			}
		}
	})
	return cancel
}

// hold waits until there is room for so many bytes of messages to the server.
func (r *run) hold(n int) error {
	if r.held.TryAcquire(int64(n)) {
		return nil
	}
	defer r.stuck()()
	return r.held.Acquire(r.ctx, int64(n))
}

// trimAfter has memory given back some time after a message, if that is long.
func (r *run) trimAfter(message []byte) {
	if len(message) > longMessage && r.cfg.Trim != nil {
		r.trim.Reset(r.lim.Trim)
	}
}

// refuse answers a message that is not sent.
func (r *run) refuse(id []byte, f *failure) error {
	defer r.stuck()()
	return r.out.write(r.ctx, f.response(id))
}

func (r *run) dispatch(line []byte) error {
	m, err := parse(line)
	if err != nil {
		r.log.Warn("a message of the client was refused", "reason", err)
		f := &failure{code: codeInvalid, kind: "invalid", message: "the message was not sent: " + err.Error()}
		if errors.Is(err, errNotJSON) {
			f.code = codeParse
		}
		for _, id := range m.requests() { // of a batch of which another part is none
			if err := r.refuse(id, f); err != nil {
				return err
			}
		}
		return r.refuse(m.id, f)
	}
	ids := m.requests()
	if m.kind == kindBatch {
		if f := r.refuseBatch(m); f != nil {
			for _, id := range ids {
				if err := r.refuse(id, f); err != nil {
					return err
				}
			}
			if len(ids) == 0 {
				return r.refuse(nil, f)
			}
			return nil
		}
	}
	if len(ids) > 0 && r.flights.len() >= r.lim.InFlight {
		f := &failure{code: CodeTooMany, kind: "too_many", message: fmt.Sprintf("%d requests are under way, which is the limit", r.lim.InFlight)}
		for _, id := range ids {
			if err := r.refuse(id, f); err != nil {
				return err
			}
		}
		return nil
	}
	if err := r.hold(len(line)); err != nil {
		return err
	}
	switch {
	case len(ids) > 0:
		r.begin(m, ids)
	case m.method == methodCancelled:
		r.cancelled(m)
	default:
		return r.queue(m)
	}
	return nil
}

// refuseBatch says why a batch is not sent.
func (r *run) refuseBatch(m message) *failure {
	version := r.sessions.now().versionOrNone()
	f := &failure{code: codeInvalid, kind: "batch"}
	if version != versionOfBatches {
		f.message = "the message was not sent: it is a batch, which only revision " + versionOfBatches + " of the protocol has"
		if version != "" {
			f.message += ", and the session speaks " + version
		}
		return f
	}
	for _, part := range m.parts {
		if part.method == methodInitialize || part.method == methodInitialized || part.method == methodCancelled && len(m.parts) > 1 {
			f.message = "the message was not sent: " + part.method + " does not belong into a batch"
			return f
		}
	}
	return nil
}

// pulse tells whoever waits that something has gone well.
type pulse struct {
	mu   sync.Mutex
	next chan struct{}
}

func (p *pulse) wait() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = make(chan struct{})
	}
	return p.next
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next != nil {
		close(p.next)
		p.next = nil
	}
}
