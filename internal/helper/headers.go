package helper

import "io"

// HeadersServerVariable is where Claude Code says which MCP server the
// headers are for.
const HeadersServerVariable = "CLAUDE_CODE_MCP_SERVER_URL"

type headers struct {
	Authorization string
}

// WriteHeaders writes the JSON object of header names and values that Claude
// Code expects of a headersHelper.
func WriteHeaders(out io.Writer, c Credential) error {
	token, err := c.text()
	if err != nil {
		return err
	}
	return writeJSON(out, headers{"Bearer " + token})
}
