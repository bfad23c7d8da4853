package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"triphammer/server/api"
	"triphammer/server/hosted"
	"triphammer/server/store"
	"triphammer/server/terms"
)

const (
	ingress = "/webhooks/w/"
)

// routes adds all routes. openapi.yaml describes them, and a test compares the two.
func (s *Server) routes(e *gin.Engine) {
	e.POST(ingress+":uid", s.receive)
	e.POST(ingress+":uid/:token", s.receive)

	e.GET(repositories+":repository/info/refs", s.refs)
	e.POST(repositories+":repository/"+hosted.Fetch, s.service(hosted.Fetch))
	e.POST(repositories+":repository/"+hosted.Push, s.service(hosted.Push))

	e.GET("/healthz", s.healthz)
	e.GET("/readyz", s.readyz)
	e.GET("/metrics", s.metrics)
	e.GET("/openapi.yaml", s.openapi)
	e.GET(api.Base+"/factory-files/schemas", s.strict, s.listSchemas)
	e.GET(api.Base+"/factory-files/schemas/:version", s.strict, s.bundleSchemas)
	e.GET(api.Base+"/factory-files/schemas/:version/:document", s.strict, s.getSchema)
	e.POST(api.Base+"/factory-files/validate", s.strict, s.validateFiles)

	e.POST("/mcp", s.tools)
	e.POST(api.Base+"/mcp/factory", s.tools) // where the published service has it

	anyKey := e.Group(api.Base, s.require(terms.Scopes...))
	anyKey.GET("/caller", serve(s.getCaller))
	e.GET(api.Base+"/agent/sessions/:id/redirect", s.strict, s.noRedirect)
	e.GET(api.Base+"/agent/conversations/:id/redirect", s.strict, s.noRedirect)

	s.runRoutes(e)
	s.factoryRoutes(e)
	s.pages(e)
	e.NoRoute(s.noRoute)
}

// runRoutes are about runs, and what starts and serves them.
func (s *Server) runRoutes(e *gin.Engine) {
	runs := e.Group(api.Base, s.require(store.ScopeRuns))
	runs.POST("/agent/runs", serve(s.createRun))
	runs.POST("/agent/run", serve(s.createRun)) // older clients
	runs.POST("/agent/runs/:id/cancel", serve(on(aRun, s.cancelRun)))
	runs.POST("/agent/runs/:id/interrupt", serve(on(aRun, s.interruptRun)))
	runs.POST("/agent/runs/:id/followups", serve(on(aRun, s.acceptFollowUp)))
	runs.POST("/agent/runs/:id/retry", serve(on(aRun, s.retryRun)))
	runs.POST("/agent/runs/:id/answer", serve(on(aRun, s.answerRun)))
	runs.POST("/agent/conversations/:id/interrupt", serve(s.interruptConversation))
	runs.POST("/agent/conversations/:id/followups", serve(on(aRun, s.acceptFollowUp)))
	runs.POST("/agent/schedules", created(s.createSchedule))
	runs.PUT("/agent/schedules/:id", serve(on(ownSchedule, s.updateSchedule)))
	runs.DELETE("/agent/schedules/:id", serve(on(ownSchedule, s.deleteSchedule)))
	runs.POST("/agent/schedules/:id/pause", serve(on(ownSchedule, s.pauseSchedule)))
	runs.POST("/agent/schedules/:id/resume", serve(on(ownSchedule, s.resumeSchedule)))
	readRuns := e.Group(api.Base, s.require(store.ScopeRuns, store.ScopeRead))
	readRuns.GET("/agent/runs", serve(s.listRuns))
	readRuns.GET("/agent/runs/counts", serve(s.countRuns))
	readRuns.GET("/agent/runs/:id", serve(on(aRun, s.getRun)))
	readRuns.GET("/agent/runs/:id/transcript", serve(on(aRun, s.transcriptOf)))
	readRuns.GET("/agent/runs/:id/events", serve(on(aRun, s.runEvents)))
	readRuns.GET("/agent/runs/:id/timeline", serve(on(aRun, s.timeline)))
	readRuns.GET("/agent/runs/:id/conversation", serve(on(aRun, s.conversation)))
	readRuns.GET("/agent/conversations/:id", serve(s.wholeConversation))
	readRuns.GET("/agent/runs/:id/handoff/attachments", serve(on(aRun, s.handoff)))
	readRuns.GET("/agent/artifacts/:id", serve(on(anArtifact, s.getArtifact)))
	readRuns.GET("/agent/artifacts/:id/download", serve(on(anArtifact, s.downloadArtifact)))
	readRuns.GET("/agent/schedules", serve(s.listSchedules))
	readRuns.GET("/agent/schedules/:id", serve(on(aSchedule, s.getSchedule)))
	readRuns.GET("/agent", serve(s.listAgents))
	readRuns.GET("/agent/environments", serve(s.listEnvironments))
	s.published(runs, readRuns)
}

// factoryRoutes are about definitions, what came of them, and the server itself.
func (s *Server) factoryRoutes(e *gin.Engine) {
	read := e.Group(api.Base, s.require(store.ScopeRead))
	read.GET("/status", serve(s.status))
	read.GET("/stats", serve(s.stats))
	read.GET("/inbox", serve(s.listInbox))
	read.GET("/webhooks", serve(s.listWebhooks))
	read.GET("/webhooks/:name", serve(s.getWebhook))
	read.GET("/webhooks/:name/setup", serve(s.setupWebhook))
	read.GET("/signature-schemes", serve(s.listSchemes))
	read.GET("/signature-schemes/:name", serve(s.getScheme))
	read.GET("/automations", serve(s.listAutomations))
	read.GET("/workers", serve(on(everything, s.listWorkers)))
	read.GET("/deliveries", serve(s.listDeliveries))
	read.GET("/deliveries/:id", serve(on(aDelivery, s.getDelivery)))
	read.GET("/deliveries/:id/payload", serve(on(aDelivery, s.getPayload)))
	read.GET("/subjects", serve(s.listSubjects))
	read.GET("/subjects/story", serve(s.subjectStory))
	read.GET("/applies", serve(s.listApplies))
	read.GET("/applies/:id", serve(on(anApply, s.getApply)))
	read.GET("/applies/:id/files", serve(on(anApply, s.listFiles)))
	read.GET("/applies/:id/diff", serve(s.diffApplies))
	read.GET("/notices", serve(on(everything, s.listNotices)))
	read.GET("/secrets", serve(on(everything, s.listSecrets)))
	read.GET("/pending-secrets", serve(on(everything, s.listPendingSecrets)))
	read.POST("/filters/test", serve(s.testFilter))
	read.GET("/factory/:uid/metrics", serve(on(theFactory, s.factoryMetrics)))
	read.GET("/factories", serve(s.listFactories))
	read.GET("/factories/:name", serve(on(aFactory, s.getFactory)))
	read.GET("/factories/:name/log", serve(on(aFactory, s.factoryLog)))
	read.GET("/factories/:name/files", serve(on(aFactory, s.listFactoryFiles)))
	read.GET("/factories/:name/files/*path", serve(on(aFactory, s.getFactoryFile)))
	read.POST("/factories/:name/plan", serve(on(aFactory, s.plan)))

	read.POST("/auth/links", created(on(everything, s.createLoginLink)))

	e.POST(api.Base+"/factories/:name/sync", s.sync) // with a key or with a signature

	operate := e.Group(api.Base, s.require(store.ScopeOperate))
	operate.POST("/agent/runs/:id/decision", serve(on(aRun, s.decideRun)))
	operate.POST("/filters/ask", serve(s.askFilter)) // sends a managed secret to its sender
	operate.POST("/deliveries/:id/replay", serve(on(aDelivery, s.replay)))
	operate.POST("/workers/:name/drain", serve(on(everything, s.drainWorkers(true))))
	operate.POST("/workers/:name/resume", serve(on(everything, s.drainWorkers(false))))
	for _, kind := range []string{store.KindWebhook, store.KindAutomation} {
		path := "/factories/:name/" + kind + "s/:" + kind
		operate.POST(path+"/pause", serve(on(aFactory, pause(kind))))
		operate.POST(path+"/resume", serve(on(aFactory, resume(kind))))
	}
	operate.POST("/factories/:name/automations/:automation/run", serve(on(aFactory, s.runAutomation)))
	operate.POST("/factories/:name/webhooks/:webhook/test", serve(on(aFactory, s.sendTest)))
	operate.POST("/factories/:name/webhooks/:webhook/check", serve(on(aFactory, s.checkCredential))) // sends a managed secret to its sender
	operate.POST("/factory/:uid/sync", serve(on(theFactory, s.syncFactory)))
	operate.POST("/factories/:name/pin", serve(on(aFactory, s.pin)))
	operate.DELETE("/factories/:name/pin", serve(on(aFactory, s.unpin)))

	manage := e.Group(api.Base, s.require(store.ScopeManage))
	manage.POST("/factories", created(on(everything, s.createFactory)))
	manage.POST("/factories/:name/changes", serve(on(aFactory, s.postChange)))
	s.authoring(read, manage)
	manage.PUT("/secrets/:name", serve(on(everything, s.setSecret)))
	manage.DELETE("/secrets/:name", serve(on(everything, s.deleteSecret)))
	manage.POST("/github-apps", serve(on(everything, s.connectApp)))
	manage.POST("/secrets/:name/check", serve(on(everything, s.checkApp)))
	manage.POST("/pending-secrets/:id/confirm", serve(on(everything, s.confirmSecret)))
	manage.DELETE("/pending-secrets/:id", serve(on(everything, s.dismissSecret)))
	manage.GET("/keys", serve(on(everything, s.listKeys)))
	manage.POST("/keys", created(on(everything, s.createKey)))
	manage.DELETE("/keys/:name", serve(on(everything, s.revokeKey)))
	manage.GET("/audit", serve(on(everything, s.listAudit)))
	manage.POST("/clock/accept", serve(on(everything, s.acceptClock)))
	manage.POST("/backup", serve(on(everything, s.backup)))
	manage.POST("/check", serve(on(everything, s.checkStore)))
	manage.GET("/auth/sessions", serve(on(everything, s.listSessions)))
	manage.DELETE("/auth/sessions", serve(on(everything, s.endSessions)))
	manage.DELETE("/auth/sessions/:id", serve(on(everything, s.endSession)))
}

// published adds the routes that only the published API has.
func (s *Server) published(runs, readRuns *gin.RouterGroup) {
	readRuns.GET("/agent/models", serve(s.listModels))
	readRuns.GET("/agent/run-by-external-reference", serve(s.runByReference))
	readRuns.GET("/agent/runs/:id/harness-usage", serve(on(aRun, s.harnessUsage)))
	readRuns.GET("/agent/conversations/:id/transcript", serve(s.conversationTranscript))
	readRuns.GET("/agent/conversations/:id/screenshots/:screenshot/download", serve(s.downloadScreenshot))
	readRuns.GET("/agent/identities", serve(s.listIdentities))
	readRuns.GET("/agent/identities/*uid", serve(on(anIdentity, s.getIdentity)))
	runs.PUT("/agent/identities/*uid", serve(on(anIdentity, s.changeIdentity)))
	runs.DELETE("/agent/identities/*uid", serve(on(anIdentity, s.changeIdentity)))
	readRuns.GET("/factory", serve(s.findFactories))
	readRuns.GET("/factory/:uid", serve(on(theFactory, s.showFactory)))
	runs.POST("/factory/:uid/runs", serve(on(theFactory, s.dispatch)))
	s.unsupportedRoutes(runs, readRuns)
}

// noRoute answers requests that have no route. For methods other than POST, the ingress
// gives the same answer for every UID (SPEC 5.2).
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
	code, detail := api.NotFound, "no route has this path"
	if allowed := s.methodsOf(c.Request.URL.Path); len(allowed) > 0 {
		c.Header("Allow", strings.Join(allowed, ", "))
		code, detail = api.MethodNotAllowed, "this path takes "+strings.Join(allowed, ", ")
	}
	// A person who follows an old link, or types one, gets a page.
	if !strings.HasPrefix(c.Request.URL.Path, api.Base+"/") && strings.Contains(c.GetHeader("Accept"), "text/html") {
		p := api.NewProblem(code, detail)
		pageHeaders(c)
		if by, err := s.session(c); err == nil {
			c.Set(inRail, s.admit(c, by))
		}
		s.message(c, p.Status, p.Title, "There is no page at this address.")
		return
	}
	fail(c, code, detail)
}

// methodsOf are the methods that have a route for a path.
func (s *Server) methodsOf(path string) []string {
	segments := strings.Split(path, "/")
	var methods []string
	for _, r := range s.engine.Routes() {
		pattern, segments := strings.Split(r.Path, "/"), segments
		if last := len(pattern) - 1; strings.HasPrefix(pattern[last], "*") && len(segments) > last { // any number of segments
			pattern, segments = pattern[:last], segments[:last]
		}
		matches := len(pattern) == len(segments)
		if !matches {
			continue
		}
		for i := range pattern {
			matches = matches && (pattern[i] == segments[i] || strings.HasPrefix(pattern[i], ":") && segments[i] != "")
		}
		if matches && !slices.Contains(methods, r.Method) {
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
