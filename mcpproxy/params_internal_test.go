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
		"one that may be null":      {`{"a":{"type":["string","null"],"x-mcp-header":"A"}}`, `{"a":"v"}`, "v"},
		"beside odd schemas":        {`{"x":true,"y":7,"a":{"type":"string","x-mcp-header":"A","properties":[]}}`, `{"a":"v"}`, "v"},
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

func TestAToolThatAsksForAHeaderAsItMayNotIsLeftOutOfTheList(t *testing.T) {
	const good = `{"name":"good", "inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`
	for name, schema := range map[string]string{
		"of a number":             `{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`,
		"of an object":            `{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}`,
		"of two types":            `{"properties":{"a":{"type":["string","integer"],"x-mcp-header":"A"}}}`,
		"of no type":              `{"properties":{"a":{"x-mcp-header":"A"}}}`,
		"by a name that is none":  `{"properties":{"a":{"type":"string","x-mcp-header":"A\r\nB"}}}`,
		"by no name":              `{"properties":{"a":{"type":"string","x-mcp-header":""}}}`,
		"by what is no name":      `{"properties":{"a":{"type":"string","x-mcp-header":7}}}`,
		"by one name twice":       `{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`,
		"in an array":             `{"properties":{"b":{"items":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}}}`,
		"in an alternative":       `{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}`,
		"in a condition":          `{"if":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`,
		"in a definition":         `{"$defs":{"a":{"type":"string","x-mcp-header":"A"}}}`,
		"in another spelling":     `{"properties":{"a":{"type":"number","x-mcp\u002dheader":"A"}}}`,
		"of all that there is":    `{"type":"string","x-mcp-header":"A"}`,
		"one further in":          `{"properties":{"b":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}}`,
		"beside one that is good": `{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"number","x-mcp-header":"B"}}}`,
	} {
		bad := `{"name":"bad","inputSchema":` + schema + `}`
		for where, lists := range map[string][2]string{
			"alone":  {bad, ``},
			"first":  {bad + `, ` + good, good},
			"last":   {good + ` ,` + bad, good},
			"amid":   {good + `,` + bad + `,` + good + ` `, good + `,` + good + ` `},
			"always": {bad + `,` + bad, ``},
		} {
			var remembered tools
			kept, refused := remembered.learn([]byte(`{"id":1, "result":{"tools": [` + lists[0] + `], "x":1.0}}`))
			if want := `{"id":1, "result":{"tools": [` + lists[1] + `], "x":1.0}}`; string(kept) != want || len(refused) == 0 || len(remembered.of("bad")) != 0 {
				t.Errorf("%s, %s: kept %s, refused %v", name, where, kept, refused)
			}
		}
	}
}

func TestWhatOnlyLooksLikeAHeaderIsLeftAlone(t *testing.T) {
	for name, schema := range map[string]string{
		"a property of that name": `{"properties":{"x-mcp-header":{"type":"number"}}}`,
		"a value":                 `{"properties":{"a":{"default":{"x-mcp-header":7},"enum":[{"x-mcp-header":""}]}}}`,
		"no schema":               `7`,
		"a good one":              `{"properties":{"b":{"properties":{"a":{"type":"boolean","x-mcp-header":"A"}}}}}`,
	} {
		var remembered tools
		list := `{"result":{"tools":[{"name":"t","inputSchema":` + schema + `},true,{"x":[]}]}}`
		if kept, refused := remembered.learn([]byte(list)); string(kept) != list || len(refused) != 0 {
			t.Errorf("%s: kept %s, refused %v", name, kept, refused)
		}
	}
}
