package credstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
)

// expected is what a target must hold.
type expected struct {
	static, access, refresh string
	dead                    bool
}

// TestRandomOperationsAgreeWithAMap lets several stores on one directory do
// what comes to mind, one after the other, and holds each result and the file
// against a map that does the same.
func TestRandomOperationsAgreeWithAMap(t *testing.T) {
	for seed := range uint64(chosen(400, 40, 5)) {
		random := rand.New(rand.NewPCG(seed, 1))
		dir := stateDir(t)
		putStore(t, dir, map[string]record{"foreign": {"kind": "note", "x": "kept"}})
		model := map[string]expected{}
		refused := false
		issued := 0
		a := &authority{}
		a.answer = func(context.Context, int, credstore.Grant) (credstore.Tokens, error) {
			if refused {
				return credstore.Tokens{}, &credstore.Failure{Class: credstore.ClassRefused, Status: 400, Code: "invalid_grant"}
			}
			issued++
			return a.rotated(issued), nil
		}
		stores := []*credstore.Store{open(t, credstore.Config{Dir: dir}), open(t, credstore.Config{Dir: dir})}
		targets := []string{"a", "b", "c"}
		var log []string
		for step := range 30 {
			s, target := stores[random.IntN(len(stores))], targets[random.IntN(len(targets))]
			want, known := model[target]
			switch op := random.IntN(7); op {
			case 0:
				token := fmt.Sprintf("S%d", step)
				if err := s.SetStatic(t.Context(), target, secret.New(token)); err != nil {
					t.Error(err)
				}
				model[target] = expected{static: token}
				log = append(log, "static "+target)
			case 1:
				in := signedIn(fmt.Sprintf("R%d", step), fmt.Sprintf("A%d", step))
				if err := onlyError(s.Login(t.Context(), target, in)); err != nil {
					t.Error(err)
				}
				model[target] = expected{access: fmt.Sprintf("A%d", step), refresh: fmt.Sprintf("R%d", step)}
				log = append(log, "login "+target)
			case 2:
				if err := onlyError(s.Remove(t.Context(), target)); known != (err == nil) || err != nil && !errors.Is(err, credstore.ErrNoCredential) {
					t.Errorf("remove: %v", err)
				}
				delete(model, target)
				log = append(log, "remove "+target)
			case 3, 4, 5, 6:
				refused = op == 6 && !want.dead
				log = append(log, fmt.Sprintf("get %s (refresh %v, refused %v)", target, op > 4, refused))
				token, err := get(sourceOf(t, s, target, a), credstore.Request{Refresh: op > 4})
				switch {
				case !known:
					if !errors.Is(err, credstore.ErrNoCredential) {
						t.Errorf("nothing stored: %q, %v", token, err)
					}
				case want.static != "":
					if op > 4 && !errors.Is(err, credstore.ErrLoginRequired) || op <= 4 && token != want.static {
						t.Errorf("static: %q, %v", token, err)
					}
				case op <= 4:
					if token != want.access || err != nil {
						t.Errorf("fresh: %q, %v", token, err)
					}
				case want.dead || refused:
					if !errors.Is(err, credstore.ErrLoginRequired) {
						t.Errorf("refused: %q, %v", token, err)
					}
					want.dead = true
					model[target] = want
				case errors.Is(err, credstore.ErrRejected): // too many forced ones
				default:
					want.access, want.refresh = fmt.Sprintf("A-new-%d", issued), fmt.Sprintf("R-new-%d", issued)
					if token != want.access || err != nil {
						t.Errorf("refresh: %q, %v", token, err)
					}
					model[target] = want
				}
			}
			agree(t, dir, model)
			if t.Failed() {
				t.Fatalf("seed %d: %q", seed, log)
			}
		}
	}
}

// agree holds the file against the model.
func agree(t *testing.T, dir string, model map[string]expected) {
	t.Helper()
	stored := storeOf(t, dir)
	if stored["foreign"]["x"] != "kept" || len(stored) != len(model)+1 {
		t.Errorf("%d records, want %d and a foreign one", len(stored), len(model))
	}
	for target, want := range model {
		r := stored[target]
		if want.static != "" && r["token"] != want.static || want.static == "" && (r["accessJwt"] != want.access || r["refreshToken"] != want.refresh) {
			t.Errorf("%s holds something else than it must", target)
		}
	}
}

// Eight writers and twenty readers: nobody ever reads a torn store, and no
// write is lost.
func TestAStoreIsNeverTornUnderWritersAndReaders(t *testing.T) {
	dir := stateDir(t)
	put(t, storePath(dir), storeRole, map[string]any{})
	length := time.Duration(chosen(60, 4, 1)) * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var all sync.WaitGroup
	last := make([]string, 8)
	for i := range last {
		s, target := open(t, credstore.Config{Dir: dir}), fmt.Sprintf("t%d", i)
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				token := fmt.Sprintf("%d-%d-", i, n) + string(slices.Repeat([]byte("x"), n%7*700))
				if err := s.SetStatic(t.Context(), target, secret.New(token)); err != nil {
					t.Error(err)
					return
				}
				last[i] = token
			}
		})
	}
	for range 20 {
		s := open(t, credstore.Config{Dir: dir})
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.List(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	stored := storeOf(t, dir)
	for i, want := range last {
		if stored[fmt.Sprintf("t%d", i)]["token"] != want {
			t.Errorf("the last write of writer %d is lost", i)
		}
	}
}
