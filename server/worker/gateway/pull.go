package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// pulls ends the gateway's address for opening a pull request of a repository. It exists only
// for GitHub, because other forges can open a pull request for a push.
const pulls = "/pulls"

const (
	pullTime    = time.Minute // for GitHub to open a pull request
	maxPull     = 256 << 10   // bytes of the request; GitHub takes less
	maxPullBack = 1 << 20     // bytes of the answer
)

// pullsURL is GitHub's address for opening pull requests of a repository; nil: the repository is
// not on github.com.
func pullsURL(repository *url.URL) *url.URL {
	if repository.Scheme != "https" || repository.Host != "github.com" {
		return nil
	}
	return &url.URL{Scheme: "https", Host: "api.github.com", Path: "/repos" + strings.TrimSuffix(repository.Path, ".git") + pulls}
}

// openPull opens a pull request. The run posts a body for GitHub's API
// (https://docs.github.com/rest/pulls/pulls#create-a-pull-request). The answer is the address
// of the pull request, in a line of text.
func (g *Gateway) openPull(w http.ResponseWriter, r *http.Request, s *served) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPull))
	if err != nil {
		answer(w, http.StatusBadRequest, fmt.Errorf("reading the pull request: %w", err))
		return
	}
	address, err := g.postPull(r.Context(), s, body)
	if err != nil {
		answer(w, http.StatusBadGateway, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintln(w, address)
}

func (g *Gateway) postPull(ctx context.Context, s *served, body []byte) (address string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	c, err := s.current(ctx)
	if err != nil {
		return "", fmt.Errorf("no pull request was opened: there is no credential for %s: %w", s.url, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.pulls.String(), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header = http.Header{
		"Authorization": {"Bearer " + c.token}, "Accept": {"application/vnd.github+json"}, "Content-Type": {"application/json"},
		"X-Github-Api-Version": {"2022-11-28"}, "User-Agent": {"triphammer"},
	}
	resp, err := g.transport.RoundTrip(req) // it follows no redirect
	if err != nil {
		return "", s.unreached(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var told struct {
		URL     string `json:"html_url"`
		Message string `json:"message"`
		Errors  []struct{ Message, Field, Code string }
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPullBack))
	if err == nil {
		err = json.Unmarshal(text, &told)
	}
	if resp.StatusCode == http.StatusCreated && err == nil && told.URL != "" {
		return string(c.hide.Redact([]byte(clip(told.URL)))), nil
	}
	said := []string{resp.Status, told.Message}
	for _, e := range told.Errors {
		said = append(said, cmp.Or(e.Message, e.Field+" is "+e.Code))
	}
	hint := ""
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		hint = fmt.Sprintf(" (the secret %s takes a token that may write pull requests of %s)", s.Secret, s.url)
	}
	return "", fmt.Errorf("no pull request was opened: %s%s", string(c.hide.Redact([]byte(clip(strings.Join(said, ": "))))), hint)
}
