package dashboard

import (
	"cmp"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/store"
)

var secretRoutes = []Route{
	get("/secrets", secretsPage),
	post("/secrets", store.ScopeManage, setSecret, "PUT /secrets/:name"),
	post("/secrets/:name/delete", store.ScopeManage, deleteSecret, "DELETE /secrets/:name"),
	post("/pending-secrets/:id/confirm", store.ScopeManage, confirmSecret, "POST /pending-secrets/:id/confirm"),
	post("/pending-secrets/:id/dismiss", store.ScopeManage, dismissSecret, "DELETE /pending-secrets/:id"),
}

// SecretList is the page of the managed secrets: names and uses, never a value.
type SecretList struct {
	Page
	Secrets []api.Secret
	Turn    Turn
	All     int
	Waiting []api.Secret        // secrets whose newest value does not serve yet
	Pending []api.PendingSecret // secrets that senders gave and nobody has confirmed
	Missing []MissingSecret     // secrets that keep a commit from serving
	Name    string              // name in the form that sets a secret
	Problem string              // why the secret was not set
}

// MissingSecret is a secret that a webhook of the newest commit needs and that is not set.
type MissingSecret struct{ Factory, Name, Message, Where string }

var secretList = parse("secrets")

func (SecretList) template() *template.Template { return secretList() }

// Status tells that the form was refused.
func (l SecretList) Status() int {
	if l.Problem != "" {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

func secretsPage(v *Visit) (page SecretList, err error) {
	if page.Page, err = v.Page("Secrets"); err != nil {
		return page, err
	}
	page.Name = v.Query("name")
	var secrets api.List[api.Secret]
	if err = v.Get("/secrets", &secrets); err != nil {
		return page, err
	}
	var pending api.List[api.PendingSecret]
	if err = v.Get("/pending-secrets", &pending); err != nil {
		return page, err
	}
	page.All, page.Pending = len(secrets.Entries), pending.Entries
	for _, s := range secrets.Entries {
		if s.Pending {
			page.Waiting = append(page.Waiting, s)
		}
	}
	page.Secrets, page.Turn = turn(v, secrets.Entries, func(s api.Secret) []string {
		texts := []string{s.Name, s.Source}
		for _, u := range s.UsedBy {
			texts = append(texts, u.Name)
		}
		return texts
	})
	for _, f := range page.Factories {
		if f.LastApply != nil && f.State == "failing" {
			page.Missing = append(page.Missing, missingSecrets(f)...)
		}
	}
	return page, nil
}

// missingSecrets are the secrets that keep the newest commit of a factory from serving.
func missingSecrets(f api.FactoryStatus) (all []MissingSecret) {
	var found schema.Diagnostics
	_ = json.Unmarshal(f.LastApply.Diagnostics, &found) // without diagnostics, no secret is missing
	for _, d := range found {
		if d.Code != schema.MissingSecret && d.Code != schema.BadSecret {
			continue
		}
		_, name, _ := strings.Cut(d.Hint, "triphammer secrets set ")
		all = append(all, MissingSecret{Factory: cmp.Or(f.Title, f.Name), Name: name, Message: d.Message, Where: d.Path})
	}
	slices.SortFunc(all, func(a, b MissingSecret) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Where, b.Where))
	})
	return slices.CompactFunc(all, func(a, b MissingSecret) bool { return a.Name == b.Name && a.Where == b.Where })
}

// setSecret sets a secret, or shows the form again with what is wrong. The value is never
// shown.
func setSecret(v *Visit) (Content, error) {
	name := strings.TrimSpace(v.Form.Get("name"))
	var set api.Secret
	err := errors.New("a name is needed")
	if name != "" {
		err = v.Send("PUT", escaped("/secrets", name), api.SetSecret{Value: typed(v.Form.Get("value"))}, &set)
	}
	if refused := (*Refused)(nil); err != nil && (name == "" || errors.As(err, &refused) && refused.Status < 500) {
		page, failed := secretsPage(v)
		page.Name, page.Problem = name, err.Error()
		return page, failed
	}
	said := "The secret " + set.Name + " has a new value."
	if set.Pending {
		said = "The secret " + set.Name + " has a new value, which serves with the next apply."
	}
	if set.Warning != "" {
		said += " Mind that " + set.Warning + "."
	}
	return SeeOther{To: "/secrets", Said: said}, err
}

// typed is the text of a text area, without the carriage returns that browsers add, and without the
// line end that people paste.
func typed(text string) string {
	return strings.TrimSuffix(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
}

func deleteSecret(v *Visit) (SeeOther, error) {
	name := v.Param("name")
	return SeeOther{To: "/secrets", Said: "The secret " + name + " is deleted."}, v.Send("DELETE", escaped("/secrets", name), nil, nil)
}

func confirmSecret(v *Visit) (SeeOther, error) {
	var set api.Secret
	err := v.Send("POST", "/pending-secrets/"+url.PathEscape(v.Param("id"))+"/confirm", nil, &set)
	return SeeOther{To: "/secrets", Said: "The secret " + set.Name + " has the value that the sender gave."}, err
}

func dismissSecret(v *Visit) (SeeOther, error) {
	err := v.Send("DELETE", "/pending-secrets/"+url.PathEscape(v.Param("id")), nil, nil)
	return SeeOther{To: "/secrets", Said: "The value that the sender gave is forgotten."}, err
}
