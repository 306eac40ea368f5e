package mcpproxy

import (
	"net/http"
	"testing"
)

func TestArgumentsGoIntoTheHeadersThatASchemaAsksFor(t *testing.T) {
	list := func(properties string) []byte {
		return []byte(`{"id":1,"result":{"tools":[{"name":"t","inputSchema":{"properties":` + properties + `}},true]}}`)
	}
	for name, c := range map[string]struct{ list, arguments, want string }{
		"a string":                  {`{"a":{"type":"string","x-mcp-header":"A"}}`, `{"a":"v\u0020w"}`, "v w"},
		"what a header cannot hold": {`{"a":{"type":"string","x-mcp-header":"A"}}`, `{"a":"x\r\nB: 1"}`, "=?base64?eA0KQjogMQ==?="},
		"an integer":                {`{"a":{"type":"integer","x-mcp-header":"A"}}`, `{"a":42.0}`, "42"},
		"one that is too big":       {`{"a":{"type":"integer","x-mcp-header":"A"}}`, `{"a":9007199254740993}`, ""},
		"a fraction":                {`{"a":{"type":"integer","x-mcp-header":"A"}}`, `{"a":1.5}`, ""},
		"a boolean":                 {`{"a":{"type":"boolean","x-mcp-header":"A"}}`, `{"a":false}`, "false"},
		"null":                      {`{"a":{"type":"string","x-mcp-header":"A"}}`, `{"a":null}`, ""},
		"an object":                 {`{"a":{"type":"string","x-mcp-header":"A"}}`, `{"a":{}}`, ""},
		"nothing":                   {`{"a":{"type":"string","x-mcp-header":"A"}}`, `{}`, ""},
		"no arguments":              {`{"a":{"type":"string","x-mcp-header":"A"}}`, `7`, ""},
		"one further in":            {`{"b":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`, `{"b":{"a":"v"},"a":"w"}`, "v"},
		"beside odd schemas":        {`{"x":true,"y":7,"a":{"type":"string","x-mcp-header":"A","properties":[]}}`, `{"a":"v"}`, "v"},
		"of a wrong type":           {`{"a":{"type":"number","x-mcp-header":"A"}}`, `{"a":1}`, ""},
		"of a list of types":        {`{"a":{"type":["string"],"x-mcp-header":"A"}}`, `{"a":"v"}`, ""},
		"by a name that is none":    {`{"a":{"type":"string","x-mcp-header":"A\r\nB"}}`, `{"a":"v"}`, ""},
		"in an array":               {`{"b":{"items":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}}`, `{"b":[{"a":"v"}]}`, ""},
	} {
		var remembered tools
		remembered.learn(list(c.list))
		h := http.Header{}
		setParamHeaders(h, []byte(`{"id":2,"method":"tools/call","params":{"name":"t","arguments":`+c.arguments+`}}`), remembered.of("t"))
		if got := h.Get("Mcp-Param-A"); got != c.want || c.want == "" && len(h) != 0 {
			t.Errorf("%s: %q", name, h)
		}
	}
}

func TestWhatASchemaNoLongerAsksForIsNotSent(t *testing.T) {
	var remembered tools
	remembered.learn([]byte(`{"result":{"tools":[{"name":"t","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}]}}`))
	if len(remembered.of("t")) != 1 {
		t.Fatal("it was not learnt")
	}
	remembered.learn([]byte(`{"result":{"tools":[{"name":"t","inputSchema":{}}]}}`))
	if len(remembered.of("t")) != 0 {
		t.Error("it is still asked for")
	}
}
