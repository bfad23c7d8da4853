package server

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"

	"triphammer/applier"
	"triphammer/schema"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/hosted"
	"triphammer/server/store"
)

// requestedFiles opens the newest files of a factory, or with ?commit= those of a commit, whether or
// not it serves: the newest one that was seen on the branch, or any of the branch of a factory that is
// hosted here.
func (s *Server) requestedFiles(ctx context.Context, c *call, f access.Factory) (commit string, tree fs.FS, err error) {
	asked := c.Query("commit")
	if asked == "" {
		return s.authors.Newest(ctx, f)
	}
	if head := f.State().Head; asked != head {
		home, err := s.authors.Home(f)
		if err != nil {
			return "", nil, api.Refuse(api.NotFound, "commit is the newest of the branch, "+head+"; earlier ones are read by their applies")
		}
		if asked, err = home.OnBranch(ctx, asked); err != nil {
			if bad := (*hosted.BadError)(nil); errors.As(err, &bad) {
				return "", nil, api.Refuse(api.NotFound, bad.Error())
			}
			return "", nil, err
		}
	}
	tree, err = f.At(ctx, asked)
	return asked, tree, err
}

// listFactoryFiles lists the newest files of a factory.
func (s *Server) listFactoryFiles(ctx context.Context, c *call, f access.Factory) (shown api.FactoryFiles, err error) {
	shown.Files = []api.FactoryFile{}
	var tree fs.FS
	if shown.Commit, tree, err = s.requestedFiles(ctx, c, f); err != nil {
		return shown, err
	}
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			shown.Files = append(shown.Files, factoryFile(name, info))
		}
		return err
	})
	return shown, err
}

// getFactoryFile answers with the newest text of a file of a factory.
func (s *Server) getFactoryFile(ctx context.Context, c *call, f access.Factory) (shown api.FileText, err error) {
	name := strings.TrimPrefix(c.Param("path"), "/")
	if !applier.ValidFile(name) {
		return shown, refuse("path", name, "%q is not a path from the folder that holds factory.yaml, such as webhooks/ci.yaml", name)
	}
	var tree fs.FS
	if shown.Commit, tree, err = s.requestedFiles(ctx, c, f); err != nil {
		return shown, err
	}
	file, err := tree.Open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return shown, api.Refuse(api.NotFound, "the factory has no file "+name)
	}
	if err != nil {
		return shown, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	switch {
	case err != nil:
		return shown, err
	case !info.Mode().IsRegular():
		return shown, api.Refuse(api.NotFound, name+" is no file")
	case info.Size() > schema.MaxFile:
		return shown, api.Refuse(api.RequestTooLarge, name+" is larger than a definition can be: read it with git")
	}
	data, err := io.ReadAll(file)
	shown.FactoryFile = factoryFile(name, info)
	shown.Content, shown.Encoding = api.EncodeContent(data)
	return shown, err
}

func factoryFile(name string, info fs.FileInfo) api.FactoryFile {
	return api.FactoryFile{Path: name, Size: info.Size(), Executable: info.Mode()&0o100 != 0}
}

// factoryLog lists the newest commits of a hosted factory's branch.
func (s *Server) factoryLog(ctx context.Context, c *call, f access.Factory) (shown api.List[api.FactoryCommit], err error) {
	home, err := s.authors.Home(f)
	if err != nil {
		return shown, err
	}
	limit, err := c.limit()
	if err != nil {
		return shown, err
	}
	log, err := home.Log(ctx, limit)
	return listOf(log, func(e hosted.Edit) api.FactoryCommit {
		return api.FactoryCommit{Commit: e.Commit, Author: e.Author, Subject: e.Subject, Time: e.Time}
	}), err
}

// createFactory makes a factory that lives here. It begins with a factory.yaml, so that the
// rest can be made by changes.
func (s *Server) createFactory(ctx context.Context, c *call, _ *store.Store) (shown api.FactoryStatus, err error) {
	req, err := body[api.FactoryRequest](c)
	if err != nil {
		return shown, err
	}
	if s.cfg.Host == nil {
		return shown, api.Refuse(api.Unavailable, "no server is running: triphammer serve --data DIR")
	}
	if err := s.cfg.Host(ctx, req.Name, c.Name); err != nil {
		return shown, err
	}
	c.audit("factory.create", req.Name, req.Name, "")
	f, err := c.FactoryNamed(req.Name)
	if err != nil {
		return shown, err
	}
	if !req.Empty {
		if _, err := s.authors.Begin(ctx, c.author(), f); err != nil {
			return shown, err
		}
	}
	return s.getFactory(ctx, c, f)
}
