package requestcmd

import (
	"context"
	"errors"
	"fmt"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

// exitUnanswered is the code of what may go better another time.
const exitUnanswered = 5

const maxRedirects = 10

type requestFlags struct {
	method, address, output string
	headers                 []string
	data                    string
	hasData                 bool
	include, json, fail     bool
	minValid                time.Duration
}

func (a *app) requestCommand() *cobra.Command {
	var f requestFlags
	cmd := &cobra.Command{
		Use:   "request TARGET [METHOD] URL|PATH",
		Short: "Send an HTTP request with the target's token",
		Long: `Send an HTTP request with the target's token and print the body of the answer.

A PATH that begins with a slash is one at the origin of the target's URL, any
other is one below that URL. A URL must have the origin of the target's URL or
of one of its hosts: the token goes nowhere else. METHOD is GET, or POST where
there is --data.

If the server refuses the token, it is exchanged once, by whoever comes first
of all who hold it, and the request is sent once more. Redirects are followed
for GET and HEAD, and only within the origin. Proxies are those of HTTPS_PROXY
and NO_PROXY, certificates those of the system or of SSL_CERT_FILE.

An answer of 400 or more is printed too, and the command ends with 1; with 4 if
the session lacks a scope, or has a token that cannot be exchanged; with 5 if
there is no answer; with 8 if the server refuses what its authorization server
has just issued.`,
		Example: `  spendonce request example /v1/me
  spendonce request example PUT items/7 --data @item.json -H Content-Type:text/plain
  generate | spendonce request example POST /v1/upload --data - --json`,
		Args:              requestArgs,
		ValidArgsFunction: a.completeRequest,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.hasData = cmd.Flags().Changed("data")
			f.address = args[len(args)-1]
			switch {
			case len(args) == 3:
				f.method = strings.ToUpper(args[1])
			case f.hasData:
				f.method = http.MethodPost
			default:
				f.method = http.MethodGet
			}
			return a.request(cmd.Context(), args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "a `NAME:VALUE` to send; may be repeated")
	flags.StringVar(&f.data, "data", "", "the body: a `STRING`, @FILE, or - for standard input; JSON, unless a header says otherwise")
	flags.StringVarP(&f.output, "output", "o", "", "write the body to `FILE`, unless it is an error's")
	flags.BoolVarP(&f.include, "include", "i", false, "print status and headers before the body")
	flags.BoolVar(&f.json, "json", false, "print JSON: version, status, headers, and body or body_base64")
	flags.BoolVar(&f.fail, "fail", true, "end with 1 if the answer is 400 or more")
	flags.DurationVar(&f.minValid, "min-valid", 0, "refresh before the request if less than this is left, for example 5m")
	return cmd
}

func requestArgs(cmd *cobra.Command, args []string) error {
	if len(args) < 2 || len(args) > 3 {
		return streams.Usage("say which target, and a path or URL: see '%s --help'", cmd.CommandPath())
	}
	return nil
}

var requestMethods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

func (a *app) completeRequest(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.CompleteTargets(cmd, args, word)
	case 1:
		return requestMethods, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) request(ctx context.Context, target string, f requestFlags) error {
	switch {
	case f.minValid < 0:
		return streams.Usage("--min-valid must not be negative")
	case f.include && f.json:
		return streams.Usage("--include and --json exclude each other: the headers are in the JSON")
	}
	header, err := requestHeader(f)
	if err != nil {
		return err
	}
	s, err := a.Open()
	if err != nil {
		return err
	}
	defer credcmd.CloseStore(s)
	source, err := a.Source(s, target)
	if err != nil {
		return err
	}
	p, err := a.placeOf(s, target)
	if err != nil {
		return err
	}
	to, err := requestURL(p.URL, p.Origins, f.address)
	if err != nil {
		return streams.Usage("the request was not sent: %w; the token of %s goes to %s only", err, target, originList(p.Origins))
	}
	out, err := newRequestOutput(a.Streams.Out, f.output)
	if err != nil {
		return err
	}
	defer out.end()
	a.Arm() // a server may take its time

	var notSaved error
	transport, err := bearer.New(bearer.Config{
		Target: target, Source: source, Origins: p.Origins, MinValid: f.minValid, HeaderTimeout: -1,
		Warn: func(err error) { notSaved = err },
	})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport, CheckRedirect: withinOrigin}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, f.method, to.String(), http.NoBody)
	if err != nil {
		return streams.Usage("%.40q is no HTTP method", f.method)
	}
	req.Header = header
	if f.hasData {
		done, err := a.setBody(req, f.data)
		if err != nil {
			return err
		}
		defer done()
	}
	resp, err := client.Do(req) //nolint:bodyclose // printAnswer does
	a.Progress.End()
	if err != nil {
		return errors.Join(unanswered(ctx, err, out, f), notSaved)
	}
	return errors.Join(printAnswer(ctx, resp, out, f), verdict(resp, req, f), notSaved)
}

// placeOf is where the target's token may go. Beside a store that cannot be
// read, a token in the environment still has the configuration.
func (a *app) placeOf(s *credstore.Store, target string) (credcmd.Place, error) {
	p, err := a.knownPlace(s, target)
	if err == nil && len(p.Origins) == 0 {
		err = streams.Usage("it is not known where the token of %s may go: sign in with 'spendonce login %s --url URL', or set url of the target in the configuration", target, target)
	}
	return p, err
}

// knownPlace is what is known of that, which may be nothing.
func (a *app) knownPlace(s *credstore.Store, target string) (credcmd.Place, error) {
	entries, err := s.List()
	if err != nil {
		if _, set := os.LookupEnv(credstore.OverrideVariable(target)); !set {
			return credcmd.Place{}, err
		}
	}
	list, err := a.PlacesOf(entries)
	if err != nil {
		return credcmd.Place{}, err
	}
	i := slices.IndexFunc(list, func(p credcmd.Place) bool { return p.Target == target })
	if i < 0 {
		return credcmd.Place{}, nil
	}
	return list[i], nil
}

// requestHeader checks and collects what is to be sent beside the token.
func requestHeader(f requestFlags) (http.Header, error) {
	if !isToken(f.method) || f.method == http.MethodConnect || f.method == http.MethodTrace {
		return nil, streams.Usage("%.40q is no method for a request with a token", f.method)
	}
	h := http.Header{"User-Agent": {"spendonce"}, "Accept": {"*/*"}}
	if f.hasData {
		h.Set("Content-Type", "application/json")
	}
	given := map[string]bool{}
	for _, line := range f.headers {
		name, value, err := HeaderLine(line)
		if err != nil {
			return nil, err
		}
		switch name {
		case "Authorization":
			return nil, streams.Usage("--header Authorization: the token of the target is what is sent there; use another client to send your own")
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Te", "Upgrade", "Proxy-Authorization":
			return nil, streams.Usage("--header %s: that is the connection's own and cannot be set", name)
		}
		if !given[name] {
			h.Del(name)
			given[name] = true
		}
		if value != "" { // as other clients do it: none is sent
			h.Add(name, value)
		}
	}
	return h, nil
}

// isToken reports whether s is a token of RFC 9110 section 5.6.2.
// HeaderLine reads NAME:VALUE, as --header takes it: a name in its canonical
// form, and a value on one line.
func HeaderLine(line string) (name, value string, err error) {
	name, value, ok := strings.Cut(line, ":")
	value = strings.Trim(value, " \t")
	name = http.CanonicalHeaderKey(name)
	if !ok || !isToken(name) || strings.ContainsFunc(value, func(r rune) bool { return r < 0x20 && r != '\t' || r == 0x7f }) {
		return "", "", streams.Usage("--header: one of them is not NAME:VALUE on one line")
	}
	return name, value, nil
}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// withinOrigin follows GET and HEAD to where the token may go anyway.
func withinOrigin(req *http.Request, via []*http.Request) error {
	from, err := bearer.OriginOf(via[0].URL)
	to, errTo := bearer.OriginOf(req.URL)
	switch {
	case via[0].Method != http.MethodGet && via[0].Method != http.MethodHead,
		len(via) > maxRedirects, err != nil, errTo != nil, from != to, req.URL.User != nil:
		return http.ErrUseLastResponse
	}
	return nil
}

// unanswered prints the answer that an error stands for, if there is one.
func unanswered(ctx context.Context, err error, out *requestOutput, f requestFlags) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err // its text has the URL, and in that perhaps a secret
	}
	var rejected *bearer.RejectedError
	var scope *bearer.ScopeError
	switch {
	case errors.As(err, &rejected):
		return errors.Join(printAnswer(ctx, rejected.Answer, out, f), err)
	case errors.As(err, &scope):
		return errors.Join(printAnswer(ctx, scope.Answer, out, f), err)
	case errors.Is(err, bearer.ErrUnanswered):
		return &streams.Exit{Code: exitUnanswered, Err: errors.New(credcmd.Printable(err.Error()))}
	}
	return err
}

// verdict says what an answer means beyond its body; nil if nothing.
func verdict(resp *http.Response, req *http.Request, f requestFlags) error {
	what := fmt.Sprintf("%s %s://%s%s", req.Method, req.URL.Scheme, req.URL.Host, credcmd.Printable(req.URL.EscapedPath()))
	switch status := resp.StatusCode; {
	case status == http.StatusUnauthorized:
		return &streams.Exit{Code: exitUnanswered, Err: fmt.Errorf("%s was answered 401 and its body cannot be sent twice: the token has been renewed since, so run the command again, or give the body as a file", what)}
	case status >= http.StatusBadRequest && f.fail:
		return fmt.Errorf("%s was answered %d %s", what, status, http.StatusText(status))
	case status >= http.StatusMultipleChoices && status < http.StatusBadRequest && resp.Header.Get("Location") != "":
		return fmt.Errorf("%s was answered with a redirect to %s that was not followed: %s", what, redirectedTo(resp), "only GET and HEAD are, within the origin and ten times at most")
	}
	return nil
}

// redirectedTo names the origin of a redirect; the rest of it may be a
// secret.
func redirectedTo(resp *http.Response) string {
	if to, err := resp.Location(); err == nil {
		if o, err := bearer.OriginOf(to); err == nil {
			return o.String()
		}
	}
	return "a place where no token may go"
}

func originList(origins []bearer.Origin) string {
	names := make([]string, 0, len(origins))
	for _, o := range origins {
		names = append(names, o.String())
	}
	return strings.Join(names, ", ")
}
