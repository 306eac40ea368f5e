package wire_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/internal/wire"
)

// frameOf is a request as ParseRequest takes it.
func frameOf(q wire.Request) []byte { return bytes.TrimSuffix(q.Append(nil), []byte("\n")) }

func mintRequest() wire.Request {
	return wire.Request{
		Action:     wire.MintToken,
		SessionID:  secret.New(strings.Repeat("s", 42) + "w"),
		Generation: 7,
		Binding: wire.Binding{
			CompactionEpoch: 12,
			RequestEpoch:    3456,
			HSource:         "sha256:" + strings.Repeat("0123456789abcdef", 4),
			HPayload:        "sha256:" + strings.Repeat("fedcba9876543210", 4),
			SchemaVersion:   1,
		},
	}
}

func consumeRequest() wire.Request {
	q := mintRequest()
	q.Action, q.Binding, q.Token = wire.ConsumeToken, wire.Binding{}, secret.New(strings.Repeat("t", 42)+"w")
	return q
}

func BenchmarkParseMint(b *testing.B)    { benchmarkParse(b, mintRequest()) }
func BenchmarkParseConsume(b *testing.B) { benchmarkParse(b, consumeRequest()) }

func benchmarkParse(b *testing.B, q wire.Request) {
	frame := frameOf(q)
	b.ReportAllocs()
	for b.Loop() {
		if _, code := wire.ParseRequest(frame); code != "" {
			b.Fatal(code)
		}
	}
}

func BenchmarkAppendMint(b *testing.B) {
	q := mintRequest()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = q.Append(buf[:0])
	}
}

func BenchmarkAppendAnswer(b *testing.B) {
	a := wire.Answer{Binding: mintRequest().Binding}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = a.Append(buf[:0], wire.ConsumeToken)
	}
}

func BenchmarkReadFrame(b *testing.B) {
	frame := mintRequest().Append(nil)
	var r bytes.Reader
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(frame)
		var code wire.Code
		if buf, code, _ = wire.ReadFrame(&r, buf); code != "" {
			b.Fatal(code)
		}
	}
}
