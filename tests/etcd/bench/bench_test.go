//go:build linux

// Package bench_test measures a store on etcd against the plainest use of what
// etcd offers for the same job: its own mutex around a read, a refresh if it is
// due, and a write. Both run as processes on three hosts, at the same cluster,
// in turns. `make bench` runs it; by itself it does nothing.
package bench_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/spendonce/spendonce/tests/etcd/cluster"
	"github.com/spendonce/spendonce/tests/etcd/lan"
)

const (
	crowd   = 96
	rounds  = 7
	reads   = 2000
	latency = 200 * time.Millisecond // of the authorization server

	stormBound = 0.5
	readBound  = 1.5
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(kindVariable); kind != "" {
		if err := work(kind); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type figure struct {
	name, detail string
	value, bound float64
}

func TestFigures(t *testing.T) {
	if os.Getenv("SPENDONCE_BENCH") == "" {
		return // it is asked for by `make bench`
	}
	c := cluster.Start(t, cluster.Options{Programs: 3})
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identity := filepath.Join(t.TempDir(), "identity")
	if err := os.WriteFile(identity, []byte(id.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	setup := settings{Endpoints: c.Endpoints(), Prefix: c.Prefix, CA: c.TLS.CA, Cert: c.TLS.Cert, Key: c.TLS.Key, Identity: identity}
	figures := []figure{storms(t, c, setup), cachedReads(t, c, setup)}
	figures = append(figures, sizes(t)...)
	for _, f := range figures {
		verdict := ""
		if f.bound > 0 {
			verdict = fmt.Sprintf("held (%.2f)", f.bound)
			if f.value > f.bound {
				verdict = fmt.Sprintf("MISSED (%.2f)", f.bound)
			}
		}
		fmt.Printf("%-66s %8.3f  %-14s %s\n", f.name, f.value, verdict, f.detail)
	}
}

// storms are 96 processes on three hosts that find an expired token.
func storms(t *testing.T, c *cluster.Cluster, s settings) figure {
	var ours, plain []float64
	for range rounds {
		ours = append(ours, storm(t, c, s, kindOurs))
		plain = append(plain, storm(t, c, s, kindMutex))
	}
	return figure{
		fmt.Sprintf("storm of %d processes on 3 hosts, wall minus server, against mutex", crowd),
		fmt.Sprintf("%.0f ms, etcd's mutex %.0f ms", median(ours)*1000, median(plain)*1000), ratio(ours, plain), stormBound,
	}
}

// storm is the time from the word until the last has its token, without that
// of the one exchange.
func storm(t *testing.T, c *cluster.Cluster, s settings, kind string) float64 {
	t.Helper()
	prepare(t, c, s, kind)
	workers := make([]*worker, crowd)
	for i := range workers {
		workers[i] = start(t, c.Programs[i%len(c.Programs)], s, kind)
	}
	for _, w := range workers {
		w.want(t, "ready")
	}
	begun := time.Now()
	for _, w := range workers {
		w.stdin.Close()
	}
	sent := 0
	for _, w := range workers {
		if answer := w.line(t); answer == "sent" {
			sent++
		} else if answer != "had" {
			t.Fatalf("a worker said %q", answer)
		}
	}
	took := time.Since(begun) - latency
	for _, w := range workers {
		if err := w.cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if sent != 1 {
		t.Fatalf("%s: %d exchanges", kind, sent)
	}
	return took.Seconds()
}

// cachedReads are the medians of a fresh token's reading, and of one get.
func cachedReads(t *testing.T, c *cluster.Cluster, s settings) figure {
	prepare(t, c, s, kindOurs)
	w := start(t, c.Programs[0], s, kindReads)
	w.want(t, "ready")
	w.stdin.Close()
	var got struct{ Ours, Plain float64 }
	if err := json.Unmarshal([]byte(w.line(t)), &got); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return figure{
		"reading a fresh token, against one plain get", fmt.Sprintf("%.0f us, plain get %.0f us", got.Ours*1e6, got.Plain*1e6), got.Ours / got.Plain, readBound,
	}
}

func sizes(t *testing.T) []figure {
	var figures []figure
	for _, program := range []string{"spendonce", "spendonce-etcd"} {
		path := filepath.Join(t.TempDir(), program)
		cmd := exec.Command("go", "build", "-trimpath", "-o", path, "github.com/spendonce/spendonce/cmd/"+program)
		cmd.Dir = "../../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", program, err, out)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		figures = append(figures, figure{name: "size of " + program + ", MB", value: float64(st.Size()) / 1e6})
	}
	return figures
}

// worker is one process.
type worker struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout *bufio.Reader
}

func start(t *testing.T, on *lan.Host, s settings, kind string) *worker {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), kindVariable+"="+kind, settingsVariable+"="+string(b))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := on.Start(cmd); err != nil {
		t.Fatal(err)
	}
	return &worker{cmd, in, bufio.NewReader(out)}
}

// prepare puts an expired token where workers of the kind look for it. It is
// work for a host too: nobody else reaches the cluster.
func prepare(t *testing.T, c *cluster.Cluster, s settings, kind string) {
	t.Helper()
	w := start(t, c.Programs[0], s, kindPrepare+kind)
	w.want(t, "done")
	if err := w.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

func (w *worker) line(t *testing.T) string {
	t.Helper()
	line, err := w.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("a worker ended: %v", err)
	}
	return strings.TrimSpace(line)
}

func (w *worker) want(t *testing.T, want string) {
	t.Helper()
	if got := w.line(t); got != want {
		t.Fatalf("a worker said %q, not %q", got, want)
	}
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// ratio is the median of the ratios of the pairs.
func ratio(a, b []float64) float64 {
	var r []float64
	for i := range a {
		r = append(r, a[i]/b[i])
	}
	return median(r)
}
