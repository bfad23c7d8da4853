package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/server/secret"
	"triphammer/server/store"
)

// shortSecret is the length in bytes below which a secret can be guessed (SPEC
// 10.1).
const shortSecret = 16

// forAll lets requests pass whose key is not limited to one factory: secrets and
// keys belong to the whole server.
func forAll(c *gin.Context) bool {
	if who(c).Factory == "" {
		return true
	}
	fail(c, api.NotAuthorized, "this concerns all factories, and the key is for one")
	return false
}

func (s *Server) listSecrets(c *gin.Context) {
	if !forAll(c) {
		return
	}
	infos, err := s.cfg.Store.Secrets(c.Request.Context())
	if err != nil {
		s.failWith(c, err)
		return
	}
	all := make([]api.Secret, len(infos))
	for i, info := range infos {
		all[i] = s.showSecret(info)
	}
	c.JSON(http.StatusOK, gin.H{"secrets": all, "page_info": api.PageInfo{}})
}

func (s *Server) showSecret(info store.SecretInfo) api.Secret {
	shown := api.Secret{Name: info.Name, Generation: info.Generation, SetAt: info.SetAt, Source: info.Source, UsedBy: s.usesOf(info.Name)}
	for _, use := range shown.UsedBy {
		shown.Pending = shown.Pending || use.Kind == "webhook" && use.Generation != info.Generation
	}
	return shown
}

// usesOf is who uses a secret in what serves now.
func (s *Server) usesOf(name string) []api.SecretUse {
	uses := []api.SecretUse{}
	for _, r := range s.cfg.Live.Revisions() {
		for _, w := range r.Webhooks {
			if w.Def.SecretName == name {
				uses = append(uses, api.SecretUse{Factory: r.Factory, Kind: "webhook", Name: w.Def.Name, Generation: w.SecretGeneration})
			}
		}
		for _, a := range r.Automations {
			if slices.Contains(a.Def.Settings.Secrets, name) || a.Def.Settings.Harness.AuthSecret == name {
				uses = append(uses, api.SecretUse{Factory: r.Factory, Kind: "automation", Name: a.Def.Name})
			}
		}
		for _, e := range r.Definition.Environments {
			if slices.Contains(e.Secrets, name) {
				uses = append(uses, api.SecretUse{Factory: r.Factory, Kind: "environment", Name: e.Name})
			}
		}
	}
	return uses
}

func (s *Server) setSecret(c *gin.Context) {
	name := c.Param("name")
	if !forAll(c) {
		return
	}
	body, ok := readRequest(c)
	if !ok {
		return
	}
	var req api.SetSecret
	switch err := decode(body, &req); {
	case err != nil:
		s.failWith(c, err)
	case !secret.ValidName(name):
		fail(c, api.InvalidRequest, "a secret's name has capital letters, digits and _, and begins with a letter, such as DEPLOY_TOKEN", api.FieldProblem{Field: "name", Message: name})
	case req.Value == "":
		fail(c, api.InvalidRequest, "the value is empty", api.FieldProblem{Field: "value", Message: "is empty"})
	case len(req.Value) > secret.MaxValue:
		fail(c, api.InvalidRequest, fmt.Sprintf("the value is longer than %d bytes", secret.MaxValue), api.FieldProblem{Field: "value", Message: "is too long"})
	default:
		s.storeSecret(c, name, secret.New(req.Value))
	}
}

func (s *Server) storeSecret(c *gin.Context, name string, value secret.Value) {
	generation, err := s.cfg.Store.SetSecret(c.Request.Context(), name, value)
	if err != nil {
		s.failWith(c, err)
		return
	}
	s.audit(c, "secret.set", name, "", fmt.Sprintf("generation %d", generation))
	for _, a := range s.cfg.Appliers {
		a.SecretSet(name)
	}
	shown := s.showSecret(store.SecretInfo{Name: name, Generation: generation, SetAt: s.cfg.Now()})
	switch text := value.Reveal(); {
	case strings.TrimSpace(text) != text:
		shown.Warning = "the value begins or ends with white space, which is taken as part of it"
	case len(text) < shortSecret:
		shown.Warning = fmt.Sprintf("the value is shorter than %d bytes: it may be guessed", shortSecret)
	}
	c.JSON(http.StatusOK, shown)
}

// listPendingSecrets shows what senders gave as secrets in their handshakes:
// never the values.
func (s *Server) listPendingSecrets(c *gin.Context) {
	if !forAll(c) {
		return
	}
	found, err := s.cfg.Store.PendingSecrets(c.Request.Context(), "")
	if err != nil {
		s.failWith(c, err)
		return
	}
	all := make([]api.PendingSecret, len(found))
	for i, p := range found {
		all[i] = api.PendingSecret{ID: p.ID.String(), Factory: p.Factory, Webhook: p.Webhook, SecretName: p.SecretName, ReceivedAt: p.ReceivedAt, From: p.ClientAddr}
	}
	c.JSON(http.StatusOK, gin.H{"pending_secrets": all, "page_info": api.PageInfo{}})
}

// confirmSecret makes a pending secret the managed one.
func (s *Server) confirmSecret(c *gin.Context) {
	if !forAll(c) {
		return
	}
	id, err := store.ParseID[store.PendingSecret](c.Param("id"))
	var name string
	var generation int64
	if err == nil {
		name, generation, err = s.cfg.Store.ConfirmSecret(c.Request.Context(), id)
	}
	if err != nil {
		s.failWith(c, err)
		return
	}
	s.audit(c, "secret.confirm", name, "", fmt.Sprintf("generation %d from %s", generation, c.Param("id")))
	for _, a := range s.cfg.Appliers {
		a.SecretSet(name)
	}
	c.JSON(http.StatusOK, s.showSecret(store.SecretInfo{Name: name, Generation: generation, SetAt: s.cfg.Now()}))
}

func (s *Server) dismissSecret(c *gin.Context) {
	if !forAll(c) {
		return
	}
	id, err := store.ParseID[store.PendingSecret](c.Param("id"))
	if err == nil {
		err = s.cfg.Store.DismissSecret(context.WithoutCancel(c.Request.Context()), id)
	}
	if err != nil {
		s.failWith(c, err)
		return
	}
	s.audit(c, "secret.dismiss", c.Param("id"), "", "")
	c.Status(http.StatusNoContent)
}

func (s *Server) deleteSecret(c *gin.Context) {
	name := c.Param("name")
	if !forAll(c) {
		return
	}
	if uses := s.usesOf(name); len(uses) > 0 {
		fail(c, api.Conflict, fmt.Sprintf("%s %s of factory %s uses it", uses[0].Kind, uses[0].Name, uses[0].Factory))
		return
	}
	if err := s.cfg.Store.DeleteSecret(context.WithoutCancel(c.Request.Context()), name); err != nil {
		s.failWith(c, err)
		return
	}
	s.audit(c, "secret.delete", name, "", "")
	c.Status(http.StatusNoContent)
}
