//go:build linux

// Package cluster runs a real etcd for a test: three members, each on a host of
// its own (package lan), with an authority, certificates and, if asked, users of
// its own. Members can be killed, stopped, started again and cut off; what
// crosses the network, what they log and what they keep can be searched.
//
//	c := cluster.Start(t, cluster.Options{Password: true, Programs: 1})
//	here := c.Programs[0]
//	client := c.Client(t, here, c.User)
//	c.Leader(t).Kill()
//	_, err := client.Put(ctx, c.Prefix+"key", "value")
//
// The server is the one that go.mod pins as a tool: Go builds it once and keeps
// it in its build cache.
package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/spendoncetest/canary"
	"github.com/spendonce/spendonce/tests/etcd/lan"
)

// Size is how many members a cluster has: it lives on while two of them can
// reach each other.
const Size = 3

// Patience bounds each wait for the cluster: only a hang should exceed it.
const Patience = 30 * time.Second

// Options say what kind of cluster it is. By default clients and members show
// each other certificates, and whoever has one may do everything.
type Options struct {
	// Plain is without TLS, as some run it on one machine.
	Plain bool
	// Password asks clients for a name and a password, beside the certificate.
	Password bool
	// Prefix is what the user may read and write if there are passwords;
	// "/spendonce/" if empty.
	Prefix string
	// Programs is how many further hosts there are, for programs that use the
	// cluster.
	Programs int
	// Record keeps the bytes between clients and members, see [lan.LAN.Record].
	Record bool
	// Loopback puts the hosts on loopback addresses, as plain http may need it.
	Loopback bool
	// Args are further flags of the server.
	Args []string
}

// Login is who speaks to the cluster.
type Login struct{ Name, Password string }

// Cluster is one etcd.
type Cluster struct {
	LAN      *lan.LAN
	Members  []*Member
	Programs []*lan.Host // hosts that are no members

	Prefix string
	Root   Login // may do everything; empty without passwords
	User   Login // may do everything below Prefix, and nothing else

	Authority *Authority // nil if plain
	TLS       Files      // what a client shows and trusts

	dir     string
	token   string
	options Options
}

// Start starts a cluster and waits until it answers. It ends with the test.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = "/spendonce/"
	}
	dir, err := os.MkdirTemp("", "etcd") //nolint:usetesting // the test's name may be too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	hosts := lan.New
	if o.Loopback {
		hosts = lan.NewLoopback
	}
	c := &Cluster{LAN: hosts(t, Size+o.Programs), Prefix: o.Prefix, dir: dir, token: rand.Text(), options: o}
	c.Programs = c.LAN.Hosts[Size:]
	if o.Record {
		c.LAN.Record(clientPort)
	}
	if !o.Plain {
		c.Authority = NewAuthority(t)
		c.TLS = c.Authority.Client(t, "")
	}
	for i := range Size {
		c.Members = append(c.Members, c.newMember(t, i))
	}
	for _, m := range c.Members {
		m.Launch(t)
	}
	for _, m := range c.Members {
		m.Await(t)
	}
	if o.Password {
		c.requirePasswords(t)
	}
	return c
}

// Endpoints are the URLs of all members, for clients.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.Members {
		all = append(all, m.Endpoint())
	}
	return all
}

// Leader is the member that leads, of those that are not excepted: the word of
// one that was lost is not asked. It waits until there is one.
func (c *Cluster) Leader(t testing.TB, but ...*Member) *Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	var able []*Member
	for _, m := range c.Members {
		if m.Running() && !slices.Contains(but, m) {
			able = append(able, m)
		}
	}
	// Nobody can be asked to tell when there is a leader, but by reads that
	// etcd itself repeats until there is one; the answers to those that are
	// then too many hold its loop up for a second.
	const often = 20 * time.Millisecond
	again := time.NewTicker(often)
	defer again.Stop()
	for {
		if m := leading(ctx, t, able); m != nil {
			return m
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatal("the cluster has no leader")
		}
	}
}

// leading is who leads by the word of most members, itself among them: one that
// has lost its place may not know it yet.
func leading(ctx context.Context, t testing.TB, members []*Member) *Member {
	t.Helper()
	type reign struct{ leader, term uint64 }
	ids, says := map[uint64]*Member{}, map[reign]int{}
	for _, m := range members {
		if s, err := m.status(ctx, t); err == nil {
			ids[s.Header.MemberId] = m
			says[reign{s.Leader, s.RaftTerm}]++
		}
	}
	for r, n := range says {
		if m := ids[r.leader]; m != nil && n > Size/2 {
			return m
		}
	}
	return nil
}

// Places is all that the cluster wrote and, if recorded, all that crossed the
// network between clients and members, for a search by package canary.
func (c *Cluster) Places() canary.Places {
	return canary.Places{Outputs: c.LAN.Recorded(), Dirs: []string{c.dir}}
}

func (c *Cluster) scheme() string {
	if c.options.Plain {
		return "http"
	}
	return "https"
}

// initial lists the members for each other.
func (c *Cluster) initial() string {
	var all []string
	for i, h := range c.LAN.Hosts[:Size] {
		all = append(all, fmt.Sprintf("%s=%s://%s", memberName(i), c.scheme(), h.At(peerPort)))
	}
	return strings.Join(all, ",")
}

func memberName(i int) string { return fmt.Sprintf("member%d", i) }

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }
