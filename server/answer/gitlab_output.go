package answer

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"triphammer/server/lookup"
)

// gitlabOutputs are what agents may ask for at GitLab, by https://docs.gitlab.com/api/rest.
var gitlabOutputs = map[string]Perform{
	"addLabels":    gitlabChange("add_labels", func(w *Wanted) string { return strings.Join(w.Labels, ",") }),
	"removeLabels": gitlabChange("remove_labels", func(w *Wanted) string { return strings.Join(w.Labels, ",") }),
	"close":        gitlabChange("state_event", func(*Wanted) string { return "close" }),

	"createIssue": gitlabIssue, "createPullRequest": gitlabMerge,
}

// gitlabChange changes the issue or merge request of a place, as often as it is asked.
func gitlabChange(field string, value func(*Wanted) string) Perform {
	return func(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
		path, err := p.gitlabThread()
		if err != nil {
			return Posted{}, err
		}
		return change(gitlab(ctx, c, api), p, http.MethodPut, path, map[string]string{field: value(w)})
	}
}

type gitlabMade struct {
	IID         json.RawMessage
	URL         string `json:"web_url"`
	Description string
}

// gitlabMake makes an issue or a merge request. An earlier attempt's is found by its marker among those
// of the credential's own account.
func gitlabMake(g *call, path string, w *Wanted, body map[string]any) (Posted, error) {
	if w.Again {
		query := url.Values{"scope": {"created_by_me"}, "order_by": {"created_at"}, "per_page": {"100"}}
		var list []gitlabMade
		if err := g.do(http.MethodGet, path+"?"+query.Encode(), nil, &list); err != nil {
			return Posted{}, err
		}
		for _, made := range list {
			if marked(made.Description, w.Marker) {
				return Posted{ID: numeral(made.IID), Link: made.URL}, nil
			}
		}
	}
	body["title"], body["description"] = w.title(), w.Body
	if len(w.Bounds.Labels) > 0 {
		body["labels"] = strings.Join(w.Bounds.Labels, ",")
	}
	var made gitlabMade
	if err := g.do(http.MethodPost, path, body, &made); err != nil {
		return Posted{}, err
	}
	if numeral(made.IID) == "" {
		return Posted{}, errNoID
	}
	return Posted{ID: numeral(made.IID), Link: made.URL}, nil
}

func gitlabIssue(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
	if w.Repository != "" {
		p.Container = w.Repository
	}
	if p.Container == "" {
		return Posted{}, errNowhere
	}
	return gitlabMake(gitlab(ctx, c, api), at("projects", p.Container, "issues"), w, map[string]any{})
}

func gitlabMerge(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
	if p.Container == "" {
		return Posted{}, errNowhere
	}
	g := gitlab(ctx, c, api)
	base, err := w.base(func() (string, error) {
		var main defaultBranch
		err := g.do(http.MethodGet, at("projects", p.Container), nil, &main)
		return main.Name, err
	})
	if err != nil {
		return Posted{}, err
	}
	if w.Bounds.Draft {
		w.Bounds.TitlePrefix = "Draft: " + w.Bounds.TitlePrefix
	}
	return gitlabMake(g, at("projects", p.Container, "merge_requests"), w, map[string]any{"source_branch": w.Head, "target_branch": base})
}
