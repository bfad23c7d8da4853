package server

import (
	"cmp"
	"context"
	"io"
	"mime"
	"net/http"
	"path"

	"github.com/gin-gonic/gin"

	"triphammer/factory/native"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

func anArtifact(ctx context.Context, c *call) (access.Artifact, error) {
	return c.Artifact(ctx, c.Param("id"))
}

func (s *Server) getArtifact(_ context.Context, _ *call, a access.Artifact) (api.Artifact, error) {
	return s.showArtifact(a.Artifact), nil
}

func (s *Server) showArtifact(a *store.Artifact) api.Artifact {
	shown := api.Artifact{Type: a.Type, UID: a.ID.String(), ID: a.ID.String(), CreatedAt: a.CreatedAt}
	if a.URL != "" {
		shown.Data = api.ArtifactData{URL: a.URL, Title: a.Name}
		switch a.Type {
		case event.ArtifactReference:
			shown.Data.ReferenceType = "link"
		case event.ArtifactPullRequest:
			shown.Data.Status, shown.Data.Outcome = cmp.Or(a.Outcome, "unknown"), a.Outcome
			if a.Outcome == store.MergedWithChanges {
				shown.Data.Status = native.PullMerged
			}
		}
		return shown
	}
	shown.Data = api.ArtifactData{
		UID: a.ID.String(), ID: a.ID.String(), FileName: path.Base(a.Name), FilePath: a.Name, MIMEType: a.MediaType, ContentType: a.MediaType, Size: &a.Size,
		DownloadURL: s.cfg.BaseURL + api.Base + "/agent/artifacts/" + a.ID.String() + "/download",
	}
	return shown
}

func (s *Server) downloadArtifact(_ context.Context, c *call, a access.Artifact) (done written, err error) {
	return done, sendArtifact(c.Context, a)
}

// sendArtifact answers with the bytes of a file. They come from an agent, so a browser
// must neither show them as a page nor guess what they are.
func sendArtifact(g *gin.Context, a access.Artifact) error {
	f, err := a.Open(g.Request.Context())
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	g.Header("X-Content-Type-Options", "nosniff")
	g.Header("Content-Security-Policy", "default-src 'none'; sandbox")
	g.Header("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(a.Name)}))
	g.DataFromReader(http.StatusOK, a.Size, "application/octet-stream", io.LimitReader(f, a.Size), nil)
	return nil
}
