package helper

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
)

// DockerNotFound is the text on standard output by which docker, podman and
// their libraries know that a helper has nothing for a registry; after any
// other they stop.
const DockerNotFound = "credentials not found in native keychain"

// DockerIdentityToken is the user name beside an identity token: one that
// docker sends to the registry's token service as a refresh token. An access
// token is none, but for services that take it as one.
const DockerIdentityToken = "<token>"

// DockerUsername is the user name that a registry demands beside an OAuth
// access token: that of Google's and of Quay, and for all others the one of
// GitLab, for most ignore it.
func DockerUsername(host string) string {
	host, _, _ = strings.Cut(strings.ToLower(host), ":")
	switch {
	case host == "gcr.io", strings.HasSuffix(host, ".gcr.io"), strings.HasSuffix(host, ".pkg.dev"):
		return "oauth2accesstoken"
	case host == "quay.io":
		return "$oauthtoken"
	default:
		return GitUsername
	}
}

// ReadDockerServer reads the registry's address that docker writes to get
// and erase: a URL, or a host with or without port.
func ReadDockerServer(in io.Reader) (string, error) {
	b, err := readBounded(in)
	if err != nil {
		return "", err
	}
	server := string(bytes.TrimSpace(b))
	switch {
	case server == "":
		return "", fmt.Errorf("%w: no credentials server URL", ErrInput)
	case len(server) > maxLine:
		return "", fmt.Errorf("%w: the server URL is longer than 64 KiB", ErrInput)
	case strings.ContainsFunc(server, func(r rune) bool { return r < 0x21 || r > 0x7e }):
		return "", fmt.Errorf("%w: the server URL holds white space, control or non-ASCII characters", ErrInput)
	}
	return server, nil
}

type dockerCredentials struct {
	ServerURL string
	Username  string
	Secret    string
}

// WriteDocker answers a get: server is what docker wrote.
func WriteDocker(out io.Writer, server, username string, c Credential) error {
	token, err := c.text()
	if err != nil {
		return err
	}
	return writeJSON(out, dockerCredentials{server, username, token})
}

// WriteDockerList answers a list: user names by address.
func WriteDockerList(out io.Writer, usernames map[string]string) error {
	return writeJSON(out, usernames)
}

// writeJSON writes one line, with the members of maps in their order.
func writeJSON(out io.Writer, v any) error {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("the answer could not be encoded: %w", err)
	}
	return write(out, string(b)+"\n")
}
