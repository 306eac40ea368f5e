package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOnlyTheMarkedPartOfTheDocumentIsWrittenAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(path, []byte("before $1\n<!-- compare -->\nold\n<!-- /compare -->\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(path, "new $1\n"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if want := "before $1\n<!-- compare -->\nnew $1\n<!-- /compare -->\nafter\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if rewrite(path, "new") == nil {
		t.Error("a document without marks is taken")
	}
}
