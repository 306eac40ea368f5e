//go:build linux

package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/keys"
	"github.com/spendonce/spendonce/etcdstore"
	"github.com/spendonce/spendonce/tests/etcd/cluster"
)

const (
	kindVariable     = "ETCD_BENCH_WORKER"
	settingsVariable = "ETCD_BENCH_SETTINGS"

	kindOurs  = "ours"
	kindMutex = "mutex"
	kindReads = "reads"

	kindPrepare = "prepare " // and what is to be prepared for

	box      = "box"
	plainKey = "/plain/record"
	mutexKey = "/plain/lock"
)

// settings say where the cluster is.
type settings struct {
	Endpoints             []string
	Prefix, CA, Cert, Key string
	Identity              string
}

func (s settings) files() cluster.Files { return cluster.Files{CA: s.CA, Cert: s.Cert, Key: s.Key} }

func (s settings) client() (*clientv3.Client, error) {
	tls, err := s.files().Config()
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{Endpoints: s.Endpoints, TLS: tls, DialTimeout: time.Minute, Logger: zap.NewNop()})
}

func (s settings) store() (*credstore.Store, func(), error) {
	tls, err := s.files().Config()
	if err != nil {
		return nil, nil, err
	}
	in, err := etcdstore.Open(etcdstore.Config{Endpoints: s.Endpoints, Prefix: s.Prefix, TLS: tls})
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "state")
	if err != nil {
		return nil, nil, err
	}
	by := keys.Config{Key: "age:" + s.Identity}
	store, err := credstore.Open(credstore.Config{Dir: dir, Shared: &credstore.SharedTargets{
		Names: []string{box}, In: in, Keys: &keys.Keys{Config: func() (keys.Config, error) { return by, nil }},
	}})
	if err != nil {
		return nil, nil, err
	}
	return store, func() {
		_ = store.Close(context.Background())
		_ = in.Close()
		_ = os.RemoveAll(dir)
	}, nil
}

// work is what a worker does: it connects, says that it is ready, waits for the
// word, and asks for a token.
func work(kind string) error {
	var s settings
	if err := json.Unmarshal([]byte(os.Getenv(settingsVariable)), &s); err != nil {
		return err
	}
	switch kind {
	case kindOurs:
		return workOurs(s)
	case kindMutex:
		return workMutex(s)
	case kindReads:
		return workReads(s)
	case kindPrepare + kindOurs, kindPrepare + kindMutex:
		if err := put(context.Background(), s, kind); err != nil {
			return err
		}
		fmt.Println("done")
		return nil
	default:
		return fmt.Errorf("there is no worker %q", kind)
	}
}

func await() {
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func tell(sent bool) {
	if sent {
		fmt.Println("sent")
		return
	}
	fmt.Println("had")
}

func workOurs(s settings) error {
	store, closeStore, err := s.store()
	if err != nil {
		return err
	}
	defer closeStore()
	sent := false
	src, err := store.Source(credstore.SourceConfig{Target: box, Exchange: func(context.Context, credstore.Grant) (credstore.Tokens, error) {
		sent = true
		time.Sleep(latency)
		return credstore.Tokens{
			AccessToken: credstore.NewSecret("at-1"), RefreshToken: credstore.NewSecret("rt-1"), ExpiresAt: time.Now().Add(time.Hour), Lifetime: time.Hour,
		}, nil
	}})
	if err != nil {
		return err
	}
	if _, err := src.Holds(credstore.NewSecret("none")); err != nil { // connects
		return err
	}
	await()
	got, err := src.Get(context.Background(), credstore.Request{})
	if err != nil {
		return err
	}
	if got.AccessToken.Reveal() != "at-1" {
		return errors.New("not the new token")
	}
	tell(sent)
	return nil
}

// record is what the plain way keeps.
type record struct {
	Refresh, Access string
	Expires         time.Time
}

func encode(r record) string {
	b, _ := json.Marshal(r) // it always can be
	return string(b)
}

// workMutex is the plain way: etcd's mutex around all of it.
func workMutex(s settings) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	if _, err := client.Get(ctx, plainKey); err != nil { // connects
		return err
	}
	await()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(60))
	if err != nil {
		return err
	}
	mutex := concurrency.NewMutex(session, mutexKey)
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	got, err := client.Get(ctx, plainKey)
	if err != nil {
		return err
	}
	var r record
	if err := json.Unmarshal(got.Kvs[0].Value, &r); err != nil {
		return err
	}
	sent := time.Until(r.Expires) < time.Minute
	if sent {
		time.Sleep(latency)
		r = record{Refresh: "rt-1", Access: "at-1", Expires: time.Now().Add(time.Hour)}
		if _, err := client.Put(ctx, plainKey, encode(r)); err != nil {
			return err
		}
	}
	if err := mutex.Unlock(ctx); err != nil {
		return err
	}
	tell(sent)
	return session.Close()
}

// workReads measures a fresh token's reading beside one plain get, in turns.
func workReads(s settings) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	store, closeStore, err := s.store()
	if err != nil {
		return err
	}
	defer closeStore()
	src, err := store.Source(credstore.SourceConfig{Target: box, Exchange: func(context.Context, credstore.Grant) (credstore.Tokens, error) {
		return credstore.Tokens{
			AccessToken: credstore.NewSecret("at-1"), RefreshToken: credstore.NewSecret("rt-1"), ExpiresAt: time.Now().Add(time.Hour), Lifetime: time.Hour,
		}, nil
	}})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := src.Get(ctx, credstore.Request{}); err != nil {
		return err
	}
	await()
	var ours, plain []float64
	for range reads {
		begun := time.Now()
		if _, err := src.Get(ctx, credstore.Request{}); err != nil {
			return err
		}
		half := time.Now()
		if _, err := client.Get(ctx, s.Prefix+"targets/"+box+"/value"); err != nil {
			return err
		}
		ours, plain = append(ours, half.Sub(begun).Seconds()), append(plain, time.Since(half).Seconds())
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{"Ours": median(ours), "Plain": median(plain)})
}

// put puts an expired token.
func put(ctx context.Context, s settings, kind string) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	if kind == kindPrepare+kindMutex {
		_, err = client.Put(ctx, plainKey, encode(record{Refresh: "rt-0", Expires: time.Now().Add(-time.Minute)}))
		return err
	}
	if _, err := client.Delete(ctx, s.Prefix, clientv3.WithPrefix()); err != nil {
		return err
	}
	store, closeStore, err := s.store()
	if err != nil {
		return err
	}
	defer closeStore()
	_, err = store.Login(ctx, box, credstore.SignedIn{
		URL: "https://mcp.example.com", Pin: credstore.Pin{Issuer: "https://login.example.com", TokenEndpoint: "https://login.example.com/token", ClientID: "c"},
		Tokens: credstore.Tokens{AccessToken: credstore.NewSecret("at-0"), RefreshToken: credstore.NewSecret("rt-0"), ExpiresAt: time.Now().Add(-time.Minute), Lifetime: time.Hour},
	})
	return err
}
