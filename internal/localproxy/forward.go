package localproxy

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// admitted is the key of a request's admission in its context.
type admitted struct{}

// handler lets requests in and forwards them.
func (p *Proxy) handler() http.Handler {
	target, err := url.Parse(p.cfg.To.String())
	if err != nil {
		target = &url.URL{} // no origin: bearer sends nothing there
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			in, _ := r.In.Context().Value(admitted{}).(admission)
			to := *in.path
			to.Scheme, to.Host = target.Scheme, target.Host
			r.Out.URL, r.Out.Host = &to, ""
			r.Out.Trailer = nil
			r.Out.Header.Del("Connection")
			r.Out.Header.Del("Upgrade")
			p.door.clean(r.Out.Header)
		},
		Transport:     p.cfg.Transport,
		FlushInterval: -1, // an event is seen when it happens
		BufferPool:    &buffers{},
		ErrorLog:      log.New(io.Discard, "", 0), // of answers that broke off: the client sees that
		ModifyResponse: func(resp *http.Response) error {
			switch resp.StatusCode {
			case http.StatusUnauthorized:
				return errRenewed // all others are errors of the Transport
			case http.StatusSwitchingProtocols:
				return errSwitched
			}
			cleanAnswer(resp.Header)
			if all := resp.Header["Location"]; len(all) == 1 {
				in, _ := resp.Request.Context().Value(admitted{}).(admission)
				all[0] = relocate(all[0], resp.Request.URL, p.cfg.To, in.prefix)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			explain(err, p.cfg.Target, p.cfg.RetryAfter).write(w)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.begin() {
			refuse(http.StatusServiceUnavailable, "ending", "the proxy is about to end").write(w)
			return
		}
		defer p.running.Done()
		rec := &recorder{ResponseWriter: w}
		if p.cfg.Served != nil {
			start := time.Now()
			defer func() { p.cfg.Served(Served{r.Method, rec.status, rec.sent, time.Since(start)}) }()
		}
		in, no := p.door.judge(r)
		if no != nil {
			no.write(rec)
			return
		}
		if r.ContentLength != 0 {
			// An answer may begin before the request has ended.
			_ = http.NewResponseController(rec).EnableFullDuplex()
		}
		forward.ServeHTTP(rec, r.WithContext(context.WithValue(r.Context(), admitted{}, in)))
	})
}

// recorder notes what was answered, and keeps net/http from guessing a type.
type recorder struct {
	http.ResponseWriter
	status int
	sent   int64
}

func (r *recorder) WriteHeader(status int) {
	if status >= http.StatusOK {
		r.status = status
		if h := r.Header(); len(h["Content-Type"]) == 0 {
			h["Content-Type"] = nil
		}
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	n, err := r.ResponseWriter.Write(b)
	r.sent += int64(n)
	return n, err
}

// Unwrap is for [http.ResponseController].
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// buffers are those of copying.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if got, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return got[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(buf []byte) {
	if len(buf) == bufferSize {
		b.pool.Put((*[bufferSize]byte)(buf))
	}
}
