package server

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"triphammer/server/api"
	"triphammer/server/store"
)

const (
	ingress = "/webhooks/w/"
)

// routes has every route; openapi.yaml describes them, and a test holds the two
// together.
func (s *Server) routes(e *gin.Engine) {
	e.POST(ingress+":uid", s.receive)
	e.POST(ingress+":uid/:token", s.receive)

	e.GET("/healthz", s.healthz)
	e.GET("/readyz", s.readyz)
	e.GET("/metrics", s.metrics)
	e.GET("/openapi.yaml", s.openapi)
	e.GET(api.Base+"/factory-files/schemas", s.listSchemas)
	e.GET(api.Base+"/factory-files/schemas/:version", s.bundleSchemas)
	e.GET(api.Base+"/factory-files/schemas/:version/:document", s.getSchema)
	e.POST(api.Base+"/factory-files/validate", s.validateFiles)

	runs := e.Group(api.Base, s.require(store.ScopeRuns))
	runs.POST("/agent/runs", s.createRun)
	runs.POST("/agent/run", s.createRun) // older clients
	runs.POST("/agent/runs/:id/cancel", s.cancelRun)
	runs.POST("/agent/runs/:id/followups", s.followUp)
	runs.POST("/agent/schedules", s.createSchedule)
	runs.PUT("/agent/schedules/:id", s.updateSchedule)
	runs.DELETE("/agent/schedules/:id", s.deleteSchedule)
	runs.POST("/agent/schedules/:id/pause", s.pauseSchedule)
	runs.POST("/agent/schedules/:id/resume", s.resumeSchedule)
	readRuns := e.Group(api.Base, s.require(store.ScopeRuns, store.ScopeRead))
	readRuns.GET("/agent/runs", s.listRuns)
	readRuns.GET("/agent/runs/:id", s.getRun)
	readRuns.GET("/agent/runs/:id/transcript", s.transcript)
	readRuns.GET("/agent/runs/:id/events", s.runEvents)
	readRuns.GET("/agent/runs/:id/timeline", s.timeline)
	readRuns.GET("/agent/runs/:id/conversation", s.conversation)
	readRuns.GET("/agent/runs/:id/handoff/attachments", s.handoff)
	readRuns.GET("/agent/schedules", s.listSchedules)
	readRuns.GET("/agent/schedules/:id", s.getSchedule)
	readRuns.GET("/agent", s.listAgents)
	readRuns.GET("/agent/environments", s.listEnvironments)

	read := e.Group(api.Base, s.require(store.ScopeRead))
	read.GET("/status", s.status)
	read.GET("/webhooks", s.listWebhooks)
	read.GET("/webhooks/:name", s.getWebhook)
	read.GET("/automations", s.listAutomations)
	read.GET("/deliveries", s.listDeliveries)
	read.GET("/deliveries/:id", s.getDelivery)
	read.GET("/deliveries/:id/payload", s.getPayload)
	read.GET("/applies", s.listApplies)
	read.GET("/applies/:id", s.getApply)
	read.GET("/applies/:id/files", s.listFiles)
	read.GET("/applies/:id/diff", s.diffApplies)
	read.GET("/notices", s.listNotices)
	read.GET("/secrets", s.listSecrets)
	read.GET("/pending-secrets", s.listPendingSecrets)
	read.POST("/filters/test", s.testFilter)
	read.POST("/factories/:name/plan", s.plan)

	e.POST(api.Base+"/factories/:name/sync", s.sync) // by a key, or by a signature

	manage := e.Group(api.Base, s.require(store.ScopeManage))
	manage.POST("/deliveries/:id/replay", s.replay)
	manage.POST("/factories/:name/pin", s.pin)
	manage.DELETE("/factories/:name/pin", s.unpin)
	manage.PUT("/secrets/:name", s.setSecret)
	manage.DELETE("/secrets/:name", s.deleteSecret)
	manage.POST("/pending-secrets/:id/confirm", s.confirmSecret)
	manage.DELETE("/pending-secrets/:id", s.dismissSecret)
	manage.GET("/keys", s.listKeys)
	manage.POST("/keys", s.createKey)
	manage.DELETE("/keys/:name", s.revokeKey)
	manage.GET("/audit", s.listAudit)
	manage.POST("/clock/accept", s.acceptClock)
	manage.POST("/auth/links", s.createLoginLink)
	manage.POST("/backup", s.backup)
	manage.POST("/check", s.checkStore)
	manage.DELETE("/auth/sessions", s.endSessions)

	s.pages(e)
	e.NoRoute(s.noRoute)
}

// noRoute answers what no route takes. The ingress answers any method but POST
// alike for every UID (SPEC 5.2).
func (s *Server) noRoute(c *gin.Context) {
	if path := c.Request.URL.Path; strings.HasPrefix(path, ingress) {
		if c.Request.Method == http.MethodPost {
			answerIngress(c, http.StatusNotFound)
			return
		}
		c.Header("Allow", http.MethodPost)
		answerIngress(c, http.StatusMethodNotAllowed)
		return
	}
	if allowed := s.methodsOf(c.Request.URL.Path); len(allowed) > 0 {
		c.Header("Allow", strings.Join(allowed, ", "))
		fail(c, api.MethodNotAllowed, "this path takes "+strings.Join(allowed, ", "))
		return
	}
	fail(c, api.NotFound, "no route has this path")
}

// methodsOf are the methods that a path takes.
func (s *Server) methodsOf(path string) []string {
	segments := strings.Split(path, "/")
	var methods []string
	for _, r := range s.engine.Routes() {
		pattern := strings.Split(r.Path, "/")
		if len(pattern) != len(segments) {
			continue
		}
		matches := true
		for i := range pattern {
			matches = matches && (pattern[i] == segments[i] || strings.HasPrefix(pattern[i], ":") && segments[i] != "")
		}
		if matches {
			methods = append(methods, r.Method)
		}
	}
	return methods
}

func panicText(r any) string {
	if err, ok := r.(error); ok {
		return fmt.Sprintf("%T: %v", r, err)
	}
	return fmt.Sprintf("%T", r)
}
