package democmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/spendoncetest"
)

// naiveStorm lets clients without a lock share the session.
func (st *stage) naiveStorm(ctx context.Context) scene {
	asked := fmt.Sprintf("%d clients without a lock, token expired", crowd)
	if err := st.expire(ctx); err != nil {
		return wrong(asked, err)
	}
	err := st.server.Configure(func(c *spendoncetest.TokenServerConfig) { c.Latency = 100 * time.Millisecond })
	if err != nil {
		return wrong(asked, err)
	}
	before := st.server.Counters()
	answers, err := st.ask(ctx, crowd, "", "demo", "naive-client", filepath.Join(st.state, "remote-credentials.json"), st.server.TokenEndpoint(), st.server.ClientID())
	if err != nil {
		return wrong(asked, err)
	}
	live, _ := st.live(answers)
	after := st.server.Counters()
	loggedOut := st.child(ctx, "token", target, "--refresh", "--quiet").Run() != nil
	happened := []fact{
		{fmt.Sprintf("%d double spends", after.DoubleSpends-before.DoubleSpends), after.DoubleSpends > before.DoubleSpends},
		{fmt.Sprintf("%d live tokens", live), live < crowd},
	}
	if loggedOut {
		happened = append(happened, fact{"the user is logged out", true})
	} else {
		happened = append(happened, fact{"the session survived by luck", false})
	}
	return outcome(asked, happened...)
}

// naiveClientCommand is the client that everybody writes first: read the
// store, send the refresh token, write the store.
func naiveClientCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "naive-client STORE ENDPOINT CLIENT",
		Hidden: true,
		Args:   cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			return naiveClient(cmd.Context(), cmd.OutOrStdout(), args[0], args[1], args[2])
		},
	}
}

func naiveClient(ctx context.Context, out io.Writer, store, endpoint, client string) error {
	b, err := os.ReadFile(store)
	if err != nil {
		return err
	}
	var records map[string]map[string]string
	if err := json.Unmarshal(b, &records); err != nil {
		return fmt.Errorf("reading the store: %w", err)
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {records[target]["refreshToken"]}, "client_id": {client}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := (&http.Client{}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		AccessToken  string `json:"access_token"`
		RefreshToken string `json:"refresh_token"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if answer.AccessToken == "" {
		return fmt.Errorf("the server answered with status %d", res.StatusCode)
	}
	records[target]["accessJwt"], records[target]["refreshToken"] = answer.AccessToken, answer.RefreshToken
	if b, err = json.Marshal(records); err != nil {
		return err
	}
	if err := os.WriteFile(store, b, 0o600); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, answer.AccessToken)
	return err
}
