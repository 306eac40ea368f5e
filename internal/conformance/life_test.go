//go:build linux

package conformance_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spendonce/spendonce/internal/conformance"
)

func TestNoActorOutlivesARun(t *testing.T) {
	mark, socket := newMark(), serve(t, "")
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	_, err := conformance.RunOnly(t.Context(), conformance.Config{Socket: socket, Actor: actorMarked(mark)},
		func(name string) bool { return strings.Contains(name, "anchor") || strings.Contains(name, "orphan") })
	if err != nil {
		t.Fatal(err)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("still there: %q", left)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("not reaped: %q", left)
	}
}

func TestARunEndsWithItsContextAndSoDoItsActors(t *testing.T) {
	mark := newMark()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	report, err := conformance.Run(ctx, conformance.Config{
		Socket: serve(t, ""), Actor: actorMarked(mark), Quick: true,
		Progress: func(done, _ int, _ string) {
			if done == 8 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) || len(report) != 8 {
		t.Errorf("%d results, %v", len(report), err)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("not reaped: %q", left)
	}
	awaitNone(t, mark)
}

// Whatever kills the kit, nobody is left who could still act for a session.
func TestActorsEndWhenTheKitIsKilled(t *testing.T) {
	mark := newMark()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), kitVariable+"="+serve(t, ""), markVariable+"="+mark)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	if _, err := out.Read(make([]byte, 1)); err != nil { // it is in the middle of a run
		t.Fatal(err)
	}
	if len(marked(t, mark)) < 3 {
		t.Errorf("there are no actors yet: %q", marked(t, mark))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitNone(t, mark)
}

// Nothing of this waits for an actor, which the end of its channel would tell.
func TestNoCheckBeginsAfterTheEndOfTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	report, err := conformance.RunOnly(ctx, conformance.Config{
		Socket: serve(t, ""), Actor: actor(), Progress: func(int, int, string) { cancel() },
	}, func(name string) bool { return strings.HasPrefix(name, "the socket") })
	if !errors.Is(err, context.Canceled) || len(report) != 0 {
		t.Errorf("%d results, %v", len(report), err)
	}
}

func TestACheckThatWaitsEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	report, err := conformance.RunOnly(ctx, conformance.Config{Socket: serve(t, "no deadline"), Actor: actor()},
		func(name string) bool { return name == "a connection on which nothing comes is ended" })
	if !errors.Is(err, context.DeadlineExceeded) || len(report) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestWhatTheKitCannotDoIsAnError(t *testing.T) {
	socket := serve(t, "")
	for _, c := range []struct {
		name string
		cfg  conformance.Config
		want string
	}{
		{"no socket", conformance.Config{Actor: actor()}, "needs a socket"},
		{"no actor", conformance.Config{Socket: socket}, "needs a socket"},
		{"no such actor", conformance.Config{Socket: socket, Actor: []string{"/no/such/program"}}, "finding the actor"},
		{"an actor that exits", conformance.Config{Socket: socket, Actor: []string{"true"}}, "starting an actor"},
		{"an actor that talks", conformance.Config{Socket: socket, Actor: []string{"echo", "hello"}}, "starting an actor"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if report, err := conformance.Run(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, and %d results", err, len(report))
			}
		})
	}
}

func TestProgressCountsEveryCheck(t *testing.T) {
	var seen []string
	report, err := conformance.RunOnly(t.Context(), conformance.Config{
		Socket: serve(t, ""), Actor: actor(),
		Progress: func(done, total int, name string) { seen = append(seen, fmt.Sprint(done, "/", total, " ", name)) },
	}, func(name string) bool { return strings.HasPrefix(name, "the socket") })
	if err != nil {
		t.Fatal(err)
	}
	if len(report) != 2 || len(seen) != 3 || !strings.HasPrefix(seen[0], "0/2 the") || seen[2] != "2/2 " {
		t.Errorf("%d results, progress %q", len(report), seen)
	}
}

func TestAQuickRunSaysWhatItLeftOut(t *testing.T) {
	const name = "a client that never half-closes gets no ok"
	report, err := conformance.RunOnly(t.Context(), conformance.Config{Socket: serve(t, ""), Actor: actor(), Quick: true},
		func(n string) bool { return n == name })
	if err != nil {
		t.Fatal(err)
	}
	if len(report) != 1 || !report[0].Skipped || report[0].Held || report[0].Got == "" || len(report.Broken()) != 0 {
		t.Errorf("%+v", report)
	}
}

func TestTheTableShowsWhatWasSeen(t *testing.T) {
	report := conformance.Report{
		{Section: "One", Name: "this is so", Rule: "a.b", Held: true, Got: "x", Want: "x"},
		{Section: "One", Name: "that is so", Rule: "a.c", Got: "y", Want: "z"},
		{Section: "Two", Name: "left out", Rule: "d.e", Skipped: true, Got: "why"},
	}
	var b bytes.Buffer
	report.Table(&b)
	for _, want := range []string{"One\n", "held", "BROKEN", "got   y", "want  z", "Two\n", "skipped", "why", "1 held, 1 broken, 1 skipped\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, b.String())
		}
	}
}

// newMark is one that no process of an earlier run has.
func newMark() string { return rand.Text() }

// marked returns the processes with mark in their environment.
func marked(t *testing.T, mark string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		if env, err := os.ReadFile(f); err == nil && bytes.Contains(env, []byte(markVariable+"="+mark+"\x00")) {
			found = append(found, filepath.Dir(f))
		}
	}
	return found
}

func awaitNone(t *testing.T, mark string) {
	t.Helper()
	for range 1000 {
		if len(marked(t, mark)) == 0 {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Errorf("after 10 s there are still %q", marked(t, mark))
}

// children returns this process's children, zombies too.
func children(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		stat, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if fields[1] == strconv.Itoa(os.Getpid()) {
			found = append(found, string(stat))
		}
	}
	return found
}
