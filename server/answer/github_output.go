package answer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"triphammer/server/lookup"
)

// githubOutputs are what agents may ask for at GitHub, by https://docs.github.com/rest.
var githubOutputs = map[string]Perform{
	"addLabels": githubChange(http.MethodPost, "/labels", func(w *Wanted) any { return map[string][]string{"labels": w.Labels} }),
	"close":     githubChange(http.MethodPatch, "", func(*Wanted) any { return map[string]string{"state": "closed"} }),

	"assign": githubAssign, "removeLabels": githubUnlabel, "createIssue": githubIssue, "createPullRequest": githubPull, "review": githubReview,
}

// githubChange changes the issue or pull request of a place, as often as it is asked.
func githubChange(method, below string, body func(*Wanted) any) Perform {
	return func(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
		path, err := githubAbout(p)
		if err != nil {
			return Posted{}, err
		}
		return change(github(ctx, c, api), p, method, path+below, body(w))
	}
}

// githubThing is an issue, a pull request or a review.
type githubThing struct {
	ID, Number json.RawMessage
	Page       string `json:"html_url"`
	Body       string
	User       githubAuthor
	Labels     []struct{ Name string }
}

func (g *githubThing) posted() (Posted, error) {
	id := numeral(g.Number)
	id = cmp.Or(id, numeral(g.ID))
	if id == "" {
		return Posted{}, errNoID
	}
	return Posted{ID: id, Link: g.Page}, nil
}

// githubAbout is the path of the issue or pull request of a place.
func githubAbout(p Place) (string, error) {
	path, err := p.repository()
	if err != nil || p.Thread == "" {
		return "", errNowhere
	}
	return path + "/issues" + at(p.Thread), nil
}

// githubAssign assigns people. GitHub leaves out in silence whom it cannot assign, by
// https://docs.github.com/rest/issues/assignees.
func githubAssign(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
	path, err := githubAbout(p)
	if err != nil {
		return Posted{}, err
	}
	var answer struct{ Assignees []githubAuthor }
	err = github(ctx, c, api).do(http.MethodPost, path+"/assignees", map[string][]string{"assignees": w.Assignees}, &answer)
	left := slices.DeleteFunc(slices.Clone(w.Assignees), func(login string) bool {
		return answer.Assignees == nil || slices.ContainsFunc(answer.Assignees, func(a githubAuthor) bool { return strings.EqualFold(a.Login, login) })
	})
	if err == nil && len(left) > 0 {
		err = lookup.Fail("GitHub has not assigned "+strings.Join(left, ", ")+", who cannot be assigned there, or not by this credential", true)
	}
	return Posted{Link: p.Link}, err
}

func githubUnlabel(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
	path, err := githubAbout(p)
	if err != nil {
		return Posted{}, err
	}
	for _, label := range w.Labels {
		if _, err := change(github(ctx, c, api), p, http.MethodDelete, path+"/labels"+at(label), nil); unless(err, noLabel) != nil {
			return Posted{}, err
		}
	}
	return Posted{Link: p.Link}, nil
}

// githubMade looks in a list for what an earlier attempt made.
func githubMade(g *call, path string, query url.Values, marker string) (*githubThing, error) {
	own, err := self(g.client, g.api, "github", func() (Account, error) { return githubSelf(g) })
	if err != nil {
		return nil, err
	}
	for page := 1; page <= maxPages; page++ {
		query.Set("per_page", "100")
		query.Set("page", fmt.Sprint(page))
		var list []githubThing
		if err := g.do(http.MethodGet, path+"?"+query.Encode(), nil, &list); err != nil {
			return nil, err
		}
		if list == nil {
			return nil, errList
		}
		for i := range list {
			if list[i].User.is(own) && marked(list[i].Body, marker) {
				return &list[i], nil
			}
		}
		if len(list) < 100 {
			return nil, nil
		}
	}
	return nil, errLong
}

func githubIssue(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
	if w.Repository != "" {
		p.Container = w.Repository
	}
	path, err := p.repository()
	if err != nil {
		return Posted{}, err
	}
	g := github(ctx, c, api)
	if w.Again {
		if made, err := githubMade(g, path+"/issues", url.Values{"state": {"all"}, "sort": {"created"}}, w.Marker); err != nil || made != nil {
			return madeOf(made, err)
		}
	}
	body := map[string]any{"title": w.title(), "body": w.Body}
	if len(w.Bounds.Labels) > 0 {
		body["labels"] = w.Bounds.Labels
	}
	var made githubThing
	if err := g.do(http.MethodPost, path+"/issues", body, &made); err != nil {
		return Posted{}, err
	}
	posted, err := made.posted()
	// https://docs.github.com/rest/issues/issues#create-an-issue: labels of those who may not push are dropped, and nobody is told.
	if err == nil && made.Labels != nil && len(made.Labels) == 0 && len(w.Bounds.Labels) > 0 {
		err = lookup.Fail("its labels were not set: GitHub drops the labels of a credential that may not push", true)
	}
	return posted, err
}

func madeOf(made *githubThing, err error) (Posted, error) {
	if err != nil {
		return Posted{}, err
	}
	return made.posted()
}

func githubPull(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
	path, err := p.repository()
	if err != nil {
		return Posted{}, err
	}
	g := github(ctx, c, api)
	var made *githubThing
	if w.Again {
		if made, err = githubMade(g, path+"/pulls", url.Values{"state": {"all"}}, w.Marker); err != nil {
			return Posted{}, err
		}
	}
	if made == nil {
		base, err := w.base(func() (string, error) {
			var main defaultBranch
			err := g.do(http.MethodGet, path, nil, &main)
			return main.Name, err
		})
		if err != nil {
			return Posted{}, err
		}
		made = &githubThing{}
		body := map[string]any{"title": w.title(), "body": w.Body, "head": w.Head, "base": base, "draft": w.Bounds.Draft}
		if err := g.do(http.MethodPost, path+"/pulls", body, made); err != nil {
			return Posted{}, err
		}
	}
	posted, err := made.posted()
	if err == nil && len(w.Bounds.Labels) > 0 {
		_, err = change(g, p, http.MethodPost, path+"/issues"+at(posted.ID)+"/labels", map[string][]string{"labels": w.Bounds.Labels})
		if f := failed(err); f != nil && f.Final() {
			err = lookup.Fail("its labels were not set: "+err.Error(), true)
		} else if f != nil {
			err = lookup.Unsure(err.Error()) // the pull request is there: the next attempt finds it
		}
	}
	return posted, err
}

func githubReview(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
	path, err := p.repository()
	if err != nil || p.Kind != pull {
		return Posted{}, lookup.Fail("the event is not about a pull request", true)
	}
	g := github(ctx, c, api)
	path += "/pulls" + at(p.Thread) + "/reviews"
	if w.Again {
		if made, err := githubMade(g, path, url.Values{}, w.Marker); err != nil || made != nil {
			return madeOf(made, err)
		}
	}
	type comment struct {
		Path string `json:"path"`
		Line int    `json:"line"`
		Side string `json:"side"`
		Body string `json:"body"`
	}
	comments := []comment{}
	for _, r := range w.Comments {
		comments = append(comments, comment{r.Path, r.Line, "RIGHT", r.Body})
	}
	body := map[string]any{"event": "COMMENT", "body": w.Body, "comments": comments} // never an approval
	if p.Commit != "" {
		body["commit_id"] = p.Commit
	}
	var made githubThing
	if err := g.do(http.MethodPost, path, body, &made); err != nil {
		return Posted{}, err
	}
	return made.posted()
}
