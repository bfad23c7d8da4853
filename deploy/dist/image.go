package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// inImage are Debian's packages in the image: what the server runs, and what the commands of
// environments can expect. They are only extracted, so that an image for another machine
// needs no emulator, and their scripts do not run.
const inImage = "base-files,bash,bubblewrap,ca-certificates,coreutils,curl,dash,diffutils,findutils,git,grep,gzip,libc-bin,openssh-client,procps,sed,tar,util-linux"

// imageUser is the user of the image. Nobody else has this number.
const imageUser = "10001"

// image writes a container image as a file for `podman load` and `docker load`: an OCI layout
// with the manifest that older programs read.
func (d *dist) image(ctx context.Context, w io.Writer, arch string, files []file) error {
	base := filepath.Join(d.work, "base-"+arch+".tar")
	args := append([]string{"--quiet", "--variant=extract", "--architectures=" + arch, "--include=" + inImage, "bookworm", base}, mirrors()...)
	if _, err := output(ctx, d.work, []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", d.time.Unix())}, "mmdebstrap", args...); err != nil {
		return err
	}
	lower, roots, err := d.lowerLayer(base)
	if err != nil {
		return err
	}
	upper, err := d.upperLayer(files, roots)
	if err != nil {
		return err
	}
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	for _, l := range []struct{ name, by string }{{lower, "mmdebstrap --variant=extract --include=" + inImage + " bookworm"}, {upper, "make dist"}} {
		layer, err := tarball.LayerFromFile(l.name, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed))
		if err != nil {
			return err
		}
		img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: d.time}, CreatedBy: l.by}})
		if err != nil {
			return err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = arch, "linux", v1.Time{Time: d.time}
	config.Config = v1.Config{
		User: imageUser + ":" + imageUser, WorkingDir: "/data", Entrypoint: []string{"/usr/bin/triphammer"}, Cmd: []string{"serve"},
		Env: []string{
			"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/data", "LANG=C.UTF-8",
			"TRIPHAMMER_DATA=/data", "TRIPHAMMER_LISTEN=0.0.0.0:8787",
		},
		ExposedPorts: map[string]struct{}{"8787/tcp": {}}, Volumes: map[string]struct{}{"/data": {}}, StopSignal: "SIGTERM",
		Labels: map[string]string{
			"org.opencontainers.image.title": "Triphammer", "org.opencontainers.image.version": d.version,
			"org.opencontainers.image.created": d.time.Format("2006-01-02T15:04:05Z"),
		},
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	return d.layoutArchive(w, arch, img)
}

// mirrors are the files that name where this machine gets Debian's packages.
func mirrors() []string {
	return slices.DeleteFunc([]string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources"}, func(file string) bool {
		info, err := os.Stat(file)
		return err != nil || info.Size() == 0
	})
}

// lowerLayer makes a layer of Debian's files: those of the tree without what only a package
// manager needs. It also returns the certificates of authorities, which a script of their
// package would have joined.
func (d *dist) lowerLayer(base string) (name string, roots []byte, err error) {
	in, err := os.Open(base)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = in.Close() }() // only read
	name = strings.TrimSuffix(base, ".tar") + "-lower.tar"
	out, err := os.Create(name)
	if err != nil {
		return "", nil, err
	}
	authorities := make(map[string][]byte)
	t, to := tar.NewReader(in), tar.NewWriter(out)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", nil, err
		}
		clean := strings.Trim(path.Clean(h.Name), "/")
		if clean == "." || leftOut(clean) || h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock {
			continue
		}
		h.Name, h.ModTime, h.AccessTime, h.ChangeTime, h.Uname, h.Gname, h.Format = clean, d.time, d.time, d.time, "", "", tar.FormatPAX
		h.AccessTime, h.ChangeTime = h.AccessTime.Truncate(0), h.ChangeTime.Truncate(0)
		if h.Typeflag == tar.TypeDir {
			h.Name += "/"
		}
		h.Mode &^= 0o6000 // nothing in the image runs as another user
		if err := to.WriteHeader(h); err != nil {
			return "", nil, err
		}
		var copied io.Writer = to
		var kept bytes.Buffer
		if strings.HasPrefix(clean, "usr/share/ca-certificates/mozilla/") && strings.HasSuffix(clean, ".crt") {
			copied = io.MultiWriter(to, &kept)
		}
		if _, err := io.Copy(copied, t); err != nil {
			return "", nil, err
		}
		if kept.Len() > 0 {
			authorities[clean] = kept.Bytes()
		}
	}
	var names []string
	for file := range authorities {
		names = append(names, file)
	}
	slices.Sort(names)
	for _, file := range names {
		roots = append(roots, bytes.TrimRight(authorities[file], "\n")...)
		roots = append(roots, '\n')
	}
	if len(roots) == 0 {
		return "", nil, errors.New("Debian's ca-certificates has no certificates where they are expected")
	}
	return name, roots, errors.Join(to.Close(), out.Close())
}

// leftOut are files of Debian's packages that the image has no use for. Their licences stay.
func leftOut(name string) bool {
	for _, folder := range []string{"usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian", "var/lib/dpkg", "var/lib/apt", "var/cache", "var/log", "etc/apt", "dev", "proc", "sys"} {
		if strings.HasPrefix(name, folder+"/") {
			return true
		}
	}
	return strings.HasPrefix(name, "usr/share/doc/") && path.Base(name) != "copyright" && strings.Count(name, "/") > 3
}

// upperLayer makes the layer of the program, its user and its data directory.
func (d *dist) upperLayer(files []file, roots []byte) (string, error) {
	out, err := os.CreateTemp(d.work, "upper-*.tar")
	if err != nil {
		return "", err
	}
	to := tar.NewWriter(out)
	folders := make(map[string]bool)
	add := func(file string, mode int64, data []byte) error {
		if err := d.tarFolders(to, folders, path.Dir(file)); err != nil {
			return err
		}
		if err := to.WriteHeader(&tar.Header{Name: file, Mode: mode, Size: int64(len(data)), ModTime: d.time, Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err := to.Write(data)
		return err
	}
	err = errors.Join(
		add("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\ntriphammer:x:"+
			imageUser+":"+imageUser+":Triphammer:/data:/usr/sbin/nologin\n")),
		add("etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\ntriphammer:x:"+imageUser+":\n")),
		add("etc/nsswitch.conf", 0o644, []byte("passwd: files\ngroup: files\nhosts: files dns\n")),
		add("etc/ssl/certs/ca-certificates.crt", 0o644, roots),
	)
	for _, f := range files {
		if f.name == "triphammer" || strings.HasPrefix(f.to, docFolder) && !strings.Contains(f.to, "/docs/") {
			err = errors.Join(err, add(strings.TrimPrefix(f.to, "/"), f.mode, f.data))
		}
	}
	for _, folder := range []struct {
		name string
		mode int64
		id   int
	}{{"data/", 0o700, 10001}, {"tmp/", 0o1777, 0}} {
		err = errors.Join(err, to.WriteHeader(&tar.Header{
			Typeflag: tar.TypeDir, Name: folder.name, Mode: folder.mode, Uid: folder.id, Gid: folder.id, ModTime: d.time, Format: tar.FormatPAX,
		}))
	}
	return out.Name(), errors.Join(err, to.Close(), out.Close())
}

// layoutArchive writes the layout as one file, in a fixed order.
func (d *dist) layoutArchive(w io.Writer, arch string, img v1.Image) error {
	folder, err := os.MkdirTemp(d.work, "layout-")
	if err != nil {
		return err
	}
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	name := "localhost/triphammer:" + imageTag(d.version)
	err = to.AppendImage(img, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}),
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name}))
	if err != nil {
		return err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return err
	}
	blob := func(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
	older := map[string]any{"Config": blob(manifest.Config.Digest), "RepoTags": []string{name}}
	var layers []string
	for _, l := range manifest.Layers {
		layers = append(layers, blob(l.Digest))
	}
	older["Layers"] = layers
	text, err := json.Marshal([]any{older})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "manifest.json"), text, 0o644); err != nil {
		return err
	}
	t := tar.NewWriter(w)
	folders := make(map[string]bool)
	err = filepath.WalkDir(folder, func(from string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(folder, from)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if err := d.tarFolders(t, folders, path.Dir(rel)); err != nil {
			return err
		}
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // only read
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{Name: rel, Mode: 0o644, Size: info.Size(), ModTime: d.time, Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err = io.Copy(t, f)
		return err
	})
	return errors.Join(err, t.Close())
}

// imageTag is a version as a tag, which has no plus sign.
func imageTag(version string) string { return strings.ReplaceAll(version, "+", "_") }
