package lookup

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"sync"

	"triphammer/factory/native"
)

// The answers about persons (SPEC 24.1) are the roles that a person has, as native names them. Somebody who
// has no role may read, or has native.NoRole.

// account is a login or the name of an organization, which becomes part of a path.
var account = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`) })

// errOther is about an answer of somebody who has the login now and did not cause the event.
var errOther = &failure{text: "the login is another person's by now", final: true}

// permission asks what a person may do at a repository of GitHub. args are the repository, the login, and the
// identifier of the person.
func (c *Client) permission(ctx context.Context, api API, args []string) ([]string, error) {
	if len(args) != 3 || !repository.MatchString(args[0]) || !account().MatchString(args[1]) {
		return nil, errPayload
	}
	var answer struct {
		Permission string
		User       struct{ ID int64 }
	}
	if err := c.github(ctx, api, "/repos/"+args[0]+"/collaborators/"+args[1]+"/permission", &answer); err != nil {
		return nil, err
	}
	switch {
	case answer.Permission == "" || answer.User.ID == 0:
		return nil, errAnswer
	case strconv.FormatInt(answer.User.ID, 10) != args[2]:
		return nil, errOther
	case answer.Permission == "admin":
		return []string{native.RoleOwner, native.RoleWrite}, nil
	case answer.Permission == native.RoleWrite: // maintain, too
		return []string{native.RoleWrite}, nil
	case answer.Permission == "read" || answer.Permission == native.NoRole:
		return []string{answer.Permission}, nil
	}
	return nil, errAnswer
}

// membership asks whether a person is a member of an organization of GitHub. args are the organization, the
// login, and the identifier of the person.
func (c *Client) membership(ctx context.Context, api API, args []string) ([]string, error) {
	if len(args) != 3 || !account().MatchString(args[0]) || !account().MatchString(args[1]) {
		return nil, errPayload
	}
	var answer struct {
		State string
		User  struct{ ID int64 }
	}
	err := c.github(ctx, api, "/orgs/"+args[0]+"/memberships/"+args[1], &answer)
	switch {
	case isMissing(err):
		return []string{native.NoRole}, nil
	case err != nil:
		return nil, err
	case answer.State == "" || answer.User.ID == 0:
		return nil, errAnswer
	case strconv.FormatInt(answer.User.ID, 10) != args[2]:
		return nil, errOther
	case answer.State != "active": // invited
		return []string{native.NoRole}, nil
	}
	return []string{native.RoleMember}, nil
}

// Levels of access at GitLab (https://docs.gitlab.com/api/access_requests/#valid-access-levels).
const (
	gitlabGuest     = 10
	gitlabDeveloper = 30
	gitlabOwner     = 50
)

// access asks what a person may do at a project of GitLab. args are the identifiers of the project and of
// the person.
func (c *Client) access(ctx context.Context, api API, args []string) ([]string, error) {
	if len(args) != 2 {
		return nil, errPayload
	}
	for _, id := range args {
		if _, err := strconv.ParseUint(id, 10, 63); err != nil {
			return nil, errPayload
		}
	}
	var answer struct {
		ID     uint64
		State  string
		Access int `json:"access_level"`
	}
	err := c.get(ctx, api, fmt.Sprintf("/projects/%s/members/all/%s", args[0], args[1]), http.Header{}, &answer)
	switch {
	case isMissing(err):
		return []string{native.NoRole}, nil
	case err != nil:
		return nil, err
	case answer.State == "" || strconv.FormatUint(answer.ID, 10) != args[1]:
		return nil, errAnswer
	case answer.State != "active" || answer.Access < gitlabGuest:
		return []string{native.NoRole}, nil
	}
	roles := []string{native.RoleMember}
	if answer.Access >= gitlabDeveloper {
		roles = append(roles, native.RoleWrite)
	}
	if answer.Access >= gitlabOwner {
		roles = append(roles, native.RoleOwner)
	}
	return roles, nil
}

// isMissing tells whether the API has no such thing, or does not show it.
func isMissing(err error) bool {
	f := (*failure)(nil)
	return errors.As(err, &f) && f.status == http.StatusNotFound
}
