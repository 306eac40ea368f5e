//go:build linux

package leasecmd

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/lease"
)

// FuzzParseBinding: what is taken means the same to encoding/json.
func FuzzParseBinding(f *testing.F) {
	f.Add([]byte(`{"compaction_epoch":1,"request_epoch":7,"h_source":"a","h_payload":"b","schema_version":1}`))
	f.Add([]byte(` { "schema_version" : 9007199254740991, "h_payload":"\u0061","h_source":"~","request_epoch":0,"compaction_epoch":0 } `))
	f.Add([]byte(`{"compaction_epoch":1,"compaction_epoch":1,"request_epoch":7,"h_source":"a","h_payload":"b","schema_version":1}`))
	f.Add([]byte(`{"Compaction_epoch":1,"request_epoch":7,"h_source":"a","h_payload":"b","schema_version":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := parseBinding(text)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("said %q", err)
			}
			return
		}
		if b.SchemaVersion < 1 || !digest(b.HSource) || !digest(b.HPayload) || max(b.CompactionEpoch, b.RequestEpoch, b.SchemaVersion) > lease.MaxInteger {
			t.Errorf("took %+v", b)
		}
		var others lease.Binding
		if err := json.Unmarshal(text, &others); err != nil || others != b {
			t.Errorf("%q is %+v, and to others %+v, %v", text, b, others, err)
		}
	})
}
