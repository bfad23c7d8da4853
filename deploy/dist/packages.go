package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// pack writes a package of a format: deb or rpm.
func (d *dist) pack(w io.Writer, format, arch string, all []file) error {
	stage, err := os.MkdirTemp(d.work, "stage-")
	if err != nil {
		return err
	}
	var contents files.Contents
	for i, f := range all {
		if f.to == "" {
			continue
		}
		data := f.data
		if f.packed != nil {
			data = f.packed
		}
		source := filepath.Join(stage, fmt.Sprint(i))
		if err := os.WriteFile(source, data, 0o644); err != nil {
			return err
		}
		one := &files.Content{
			Source: source, Destination: f.to, Type: files.TypeFile,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: os.FileMode(f.mode), MTime: d.time},
		}
		if format == "rpm" && f.toRPM != "" {
			one.Destination = f.toRPM
		}
		if f.config {
			one.Type = files.TypeConfigNoReplace
		}
		contents = append(contents, one)
	}
	script := func(name string) string { return filepath.Join(d.root, "deploy", "packages", format, name) }
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "triphammer", Arch: arch, Platform: "linux", Version: d.packageVersion(), VersionSchema: "none", MTime: d.time,
		Section: "admin", Priority: "optional", Maintainer: "Triphammer <triphammer@localhost>",
		Description: `Events start coding agents
Triphammer serves webhooks and automations that are files in a Git
repository. Each accepted delivery starts an agent run for every automation
that wants it, and says why one did or did not start.`,
		Overridables: nfpm.Overridables{
			Depends:    map[string][]string{"deb": {"ca-certificates", "git"}, "rpm": {"ca-certificates", "git-core", "/usr/sbin/useradd"}}[format],
			Recommends: map[string][]string{"deb": {"bubblewrap", "openssh-client"}, "rpm": {"bubblewrap", "openssh-clients"}}[format],
			Suggests:   []string{"podman"},
			Contents:   contents,
			Scripts: nfpm.Scripts{
				PostInstall: script("postinst"), PreRemove: script("prerm"), PostRemove: script("postrm"),
			},
			Deb: nfpm.Deb{Compression: "gzip"},
			RPM: nfpm.RPM{Compression: "gzip", BuildHost: "localhost", Summary: "Events start coding agents", Group: "System Environment/Daemons"},
		},
	})
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	return packager.Package(info, w)
}
