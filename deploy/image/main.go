// Command image writes the container image of a release as an OCI layout in a tar file: what deploy/Dockerfile builds, for each architecture,
// without a builder. It guarantees that the same input makes the same bytes, and it owns no goroutine.
//
//	image -out FILE -version V -created SECONDS -authorities FILE ARCH=DIR...
//
// DIR is the staged archive of the release: canal-outbox, LICENSE, NOTICE.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const user = 65532 // as in deploy/Dockerfile

func main() {
	out := flag.String("out", "", "the tar file to write")
	version := flag.String("version", "dev", "of the release")
	created := flag.Int64("created", 0, "the time of everything in the image, in seconds since 1970")
	authorities := flag.String("authorities", "/etc/ssl/certs/ca-certificates.crt", "the certificate authorities to put in")
	flag.Parse()
	if err := write(*out, *version, time.Unix(*created, 0).UTC(), *authorities, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(out, version string, created time.Time, authorities string, stages []string) error {
	if out == "" || len(stages) == 0 {
		return fmt.Errorf("usage: image -out FILE ARCH=DIR...")
	}
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, stage := range stages {
		arch, dir, ok := strings.Cut(stage, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCH=DIR", stage)
		}
		image, err := build(arch, dir, version, created, authorities)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: arch},
		}})
	}
	dir, err := os.MkdirTemp("", "canal-outbox-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // only a temporary copy
	whole, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// One entry with the image's name: tools choose the architecture below it.
	if err := whole.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "canal-outbox:" + version})); err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	if err := pack(file, dir, created); err != nil {
		_ = file.Close() // it is not whole
		return err
	}
	return file.Close()
}

// build makes the image of one architecture.
func build(arch, dir, version string, created time.Time, authorities string) (v1.Image, error) {
	content, err := files(dir, created, authorities)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "canal-outbox " + version}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, config(arch, version, created, image))
}

// config is what deploy/Dockerfile says.
func config(arch, version string, created time.Time, image v1.Image) *v1.ConfigFile {
	was, err := image.ConfigFile()
	if err != nil { // of an image in memory
		panic(err)
	}
	was.Architecture, was.OS, was.Created = arch, "linux", v1.Time{Time: created}
	was.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", user, user), Entrypoint: []string{"/usr/bin/canal-outbox"}, Cmd: []string{"run"},
		ExposedPorts: map[string]struct{}{"9180/tcp": {}}, Volumes: map[string]struct{}{"/var/lib/canal-outbox": {}},
		Healthcheck: &v1.HealthConfig{
			Test: []string{"CMD", "/usr/bin/canal-outbox", "status", "--live"}, Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: 30 * time.Second,
		},
		Labels: map[string]string{
			"org.opencontainers.image.title": "canal-outbox", "org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source": "https://github.com/canal-outbox/canal-outbox",
		},
	}
	return was
}

// files is the only layer: an uncompressed tar.
func files(dir string, created time.Time, authorities string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range []string{
		"etc/", "etc/canal-outbox/", "etc/ssl/", "etc/ssl/certs/", "usr/", "usr/bin/", "usr/share/", "usr/share/doc/", "usr/share/doc/canal-outbox/", "var/", "var/lib/",
	} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: created}); err != nil {
			return nil, err
		}
	}
	state := &tar.Header{Typeflag: tar.TypeDir, Name: "var/lib/canal-outbox/", Mode: 0o700, Uid: user, Gid: user, ModTime: created}
	if err := w.WriteHeader(state); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		from, to string
		mode     int64
	}{
		{filepath.Join(dir, "canal-outbox"), "usr/bin/canal-outbox", 0o755},
		{filepath.Join(dir, "LICENSE"), "usr/share/doc/canal-outbox/LICENSE", 0o644},
		{filepath.Join(dir, "NOTICE"), "usr/share/doc/canal-outbox/NOTICE", 0o644},
		{authorities, "etc/ssl/certs/ca-certificates.crt", 0o644},
	} {
		data, err := os.ReadFile(f.from)
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.to, Mode: f.mode, Size: int64(len(data)), ModTime: created}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

// pack writes a directory as a tar, in the order of the names.
func pack(out io.Writer, dir string, created time.Time) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: created})
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: created}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}
