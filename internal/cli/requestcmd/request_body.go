package requestcmd

import (
	"context"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

// setBody gives a request the body that --data names: STRING, @FILE, or - for
// standard input. What is a regular file, by name or as standard input, can
// be sent twice however long it is. The result must be called at the end.
func (a *app) setBody(req *http.Request, data string) (done func(), err error) {
	name, isFile := strings.CutPrefix(data, "@")
	done = func() {}
	switch {
	case data == "-" || name == "-" && isFile:
		if f, ok := a.Streams.In.(*os.File); ok && setFile(req, f) {
			return done, nil
		}
		setStream(req, a.Streams.In)
		return done, nil
	case !isFile:
		setString(req, data)
		return done, nil
	}
	f, err := credcmd.OpenFile(req.Context(), name)
	if err := context.Cause(req.Context()); err != nil {
		return done, err
	}
	if err != nil {
		return done, streams.Usage("--data: %w", err)
	}
	if setFile(req, f) {
		return func() { _ = f.Close() }, nil
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		_ = f.Close()
		return done, streams.Usage("--data: %s is a directory", name)
	}
	setStream(req, f)
	return done, nil
}

func setString(req *http.Request, data string) {
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(data)), nil }
	req.Body, _ = req.GetBody()
	if req.ContentLength = int64(len(data)); data == "" {
		req.Body, req.GetBody = http.NoBody, nil
	}
}

// setFile takes a regular file from where it stands to its end.
func setFile(req *http.Request, f *os.File) bool {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	from, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return false
	}
	size := max(info.Size()-from, 0)
	if size == 0 {
		setString(req, "")
		return true
	}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(f, from, size)), nil }
	req.Body, _ = req.GetBody()
	req.ContentLength = size
	return true
}

// setStream takes what can be read once. It ends with the request's context:
// net/http waits for a body that is being read, and a person or a program that
// writes nothing may be at the other side.
func setStream(req *http.Request, in io.Reader) {
	body, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		_ = w.CloseWithError(err)
	}()
	context.AfterFunc(req.Context(), func() { _ = body.CloseWithError(context.Cause(req.Context())) })
	req.Body, req.ContentLength = body, -1
}
