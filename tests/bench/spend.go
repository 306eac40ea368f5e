package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the contender of row g

	"github.com/spendonce/spendonce/lease"
)

// spending is row g: tokens minted and consumed, each durable before the
// answer, by clients that connect for every request.
func spending(ctx context.Context, b *bench) (rows []row, err error) {
	ours, session, err := startAnchored(ctx, b)
	if err != nil {
		return nil, err
	}
	defer ours.stop()
	redis, err := startRedis(ctx, b)
	if err != nil {
		return nil, err
	}
	defer redis.stop()
	lite, err := openSQLite(ctx, b)
	if err != nil {
		return nil, err
	}
	defer lite.Close()
	raw, err := newReplacer(b)
	if err != nil {
		return nil, err
	}
	defer raw.close()

	contenders := []pairMaker{
		func(ctx context.Context) error { return leasePair(ctx, ours.client, session) },
		func(ctx context.Context) error { return redisPair(ctx, redis.socket) },
		func(ctx context.Context) error { return sqlitePair(ctx, lite) },
		func(context.Context) error { return errors.Join(raw.replace(), raw.replace()) },
	}
	// For the raw replacements there is one client: they are no server.
	for _, of := range []struct {
		clients             int
		redis, sqlite, raws float64
	}{{1, 0.3, 0, 0.65}, {8, 0.4, 1, 0}, {64, 0.4, 2, 0}} {
		count := 3
		if of.clients == 1 {
			count = 4
		}
		ways := make([]func(context.Context) (float64, error), count)
		for i := range ways {
			ways[i] = func(ctx context.Context) (float64, error) { return perSecond(ctx, of.clients, contenders[i]) }
		}
		got, err := inTurn(ctx, (b.pairs+2)/3, ways...)
		if err != nil {
			return nil, err
		}
		clients := fmt.Sprintf("%d clients", of.clients)
		if of.clients == 1 {
			clients = "1 client"
		}
		n := len(rows)
		versus := func(name string, other []float64) row {
			n++
			return row{
				ID: "g" + strconv.Itoa(n), Name: "mint and consume, " + clients + ", against " + name, Figure: spreadOf(ratios(got[0], other)),
				Detail: fmt.Sprintf("%.0f pairs/s, %.0f", spreadOf(got[0]).Median, spreadOf(other).Median),
			}
		}
		rows = append(rows, versus("redis, appendfsync always", got[1]).atLeast(of.redis))
		lite := versus("sqlite, synchronous FULL", got[2])
		if of.sqlite > 0 {
			lite = lite.atLeast(of.sqlite)
		}
		rows = append(rows, lite)
		if of.raws > 0 {
			rows = append(rows, versus("two durable replacements of a file", got[3]).atLeast(of.raws))
		}
	}
	return rows, nil
}

// pairMaker mints and consumes one token.
type pairMaker func(context.Context) error

// window is how long pairs are counted.
const window = time.Second

// perSecond lets clients make pairs side by side.
func perSecond(ctx context.Context, clients int, pair pairMaker) (float64, error) {
	settle()
	var made atomic.Int64
	var failed error
	var once sync.Once
	var wg sync.WaitGroup
	start := time.Now()
	end := start.Add(window)
	for range clients {
		wg.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil {
				if err := pair(ctx); err != nil {
					once.Do(func() { failed = err })
					return
				}
				made.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(made.Load()) / time.Since(start).Seconds(), failed
}

var payload = lease.Binding{
	CompactionEpoch: 3, RequestEpoch: 14, SchemaVersion: 1,
	HSource:  "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef",
	HPayload: "sha256:0a0a9f2a6772942557ab5355d76af442f8f65e01a3f9c8b1d7e6a5c4b3a29180",
}

func leasePair(ctx context.Context, client *lease.Client, s lease.Session) error {
	token, err := client.Mint(ctx, s, payload)
	if err != nil {
		return err
	}
	got, err := client.Consume(ctx, s, token)
	if err == nil && got != payload {
		err = errors.New("the broker gave back another binding")
	}
	return err
}

// process is a server that was started for a measurement.
type process struct {
	cmd    *exec.Cmd
	socket string
	client *lease.Client
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	_ = p.cmd.Wait()
}

// startBroker starts ours and waits until it accepts.
func startBroker(ctx context.Context, b *bench) (*process, error) {
	dir, err := b.place("broker")
	if err != nil {
		return nil, err
	}
	p := &process{socket: filepath.Join(dir, "b.sock")}
	p.client = &lease.Client{Socket: p.socket}
	p.cmd = exec.CommandContext(ctx, b.spendonce, "lease", "serve", "--socket", p.socket, "--state-dir", filepath.Join(dir, "state"))
	talk, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(talk).ReadString('\n')
	if err != nil || !strings.Contains(line, "listens at") {
		p.stop()
		return nil, fmt.Errorf("the broker said %q: %w", line, err)
	}
	return p, nil
}

// startAnchored starts ours and makes this process an anchor.
func startAnchored(ctx context.Context, b *bench) (*process, lease.Session, error) {
	p, err := startBroker(ctx, b)
	if err != nil {
		return nil, lease.Session{}, err
	}
	s, err := p.client.RegisterAnchor(ctx, 0)
	if err != nil {
		p.stop()
	}
	return p, s, err
}

// startRedis starts a redis that answers only what is on the disk.
func startRedis(ctx context.Context, b *bench) (*process, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("this row needs redis-server (Debian: redis-server): %w", err)
	}
	dir, err := b.place("redis")
	if err != nil {
		return nil, err
	}
	p := &process{socket: filepath.Join(dir, "r.sock")}
	p.cmd = exec.CommandContext(ctx, path, "--port", "0", "--unixsocket", p.socket, "--dir", dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0", "--maxclients", "1000")
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "ready to accept connections") {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return p, nil
		}
	}
	p.stop()
	return nil, errors.New("redis-server ended before it accepted connections")
}

var redisKeys atomic.Uint64

// redisPair is the same with redis: a value under a new key, and its one-time
// taking.
func redisPair(ctx context.Context, socket string) error {
	key := "token:" + base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprintf("%032d", redisKeys.Add(1))))
	value := fmt.Sprintf(`{"compaction_epoch":%d,"request_epoch":%d,"h_source":%q,"h_payload":%q,"schema_version":%d}`,
		payload.CompactionEpoch, payload.RequestEpoch, payload.HSource, payload.HPayload, payload.SchemaVersion)
	if got, err := redisCall(ctx, socket, "SET", key, value); err != nil || got != "OK" {
		return fmt.Errorf("redis SET said %q: %w", got, errors.Join(err))
	}
	got, err := redisCall(ctx, socket, "GETDEL", key)
	if err == nil && got != value {
		err = fmt.Errorf("redis GETDEL said %q", got)
	}
	return err
}

// redisCall makes one connection for one command.
func redisCall(ctx context.Context, socket string, args ...string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	request := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := conn.Write(request); err != nil {
		return "", err
	}
	r := bufio.NewReaderSize(conn, 1024)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch line[:1] {
	case "+":
		return line[1:], nil
	case "$":
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 {
			return "", fmt.Errorf("redis said %q", line)
		}
		text := make([]byte, n)
		_, err = io.ReadFull(r, text)
		return string(text), err
	default:
		return "", fmt.Errorf("redis said %q", line)
	}
}

// openSQLite opens a database whose commits are durable, in the journal mode
// that is fastest at that.
func openSQLite(ctx context.Context, b *bench) (*sql.DB, error) {
	dir, err := b.place("sqlite")
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "t.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(60000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(64)
	db.SetMaxIdleConns(64)
	_, err = db.ExecContext(ctx, "CREATE TABLE tokens (id TEXT PRIMARY KEY, compaction_epoch INTEGER, request_epoch INTEGER, h_source TEXT, h_payload TEXT, schema_version INTEGER)")
	return db, err
}

var sqliteKeys atomic.Uint64

func sqlitePair(ctx context.Context, db *sql.DB) error {
	id := fmt.Sprintf("%043d", sqliteKeys.Add(1))
	_, err := db.ExecContext(ctx, "INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?)", id, payload.CompactionEpoch, payload.RequestEpoch, payload.HSource, payload.HPayload, payload.SchemaVersion)
	if err != nil {
		return err
	}
	var source string
	return db.QueryRowContext(ctx, "DELETE FROM tokens WHERE id = ? RETURNING h_source", id).Scan(&source)
}

// replacer replaces a file durably, as plainly as it can be done.
type replacer struct {
	dir     *os.File
	content []byte
}

func newReplacer(b *bench) (*replacer, error) {
	path, err := b.place("raw")
	if err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	return &replacer{dir, make([]byte, 700)}, err
}

func (r *replacer) close() { _ = r.dir.Close() }

func (r *replacer) replace() error {
	temp, final := filepath.Join(r.dir.Name(), ".new"), filepath.Join(r.dir.Name(), "state")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(r.content)
	return errors.Join(err, f.Sync(), f.Close(), os.Rename(temp, final), r.dir.Sync())
}
