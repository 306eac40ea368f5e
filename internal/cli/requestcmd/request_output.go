package requestcmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

// requestOutput is where the answer to a request is written: standard output,
// or a file that is opened before anything is sent and changed only by an
// answer that is no error.
type requestOutput struct {
	stdout io.Writer
	file   *os.File // nil: none, or closed
	made   bool     // the file was not there before
	used   bool
}

func newRequestOutput(stdout io.Writer, name string) (*requestOutput, error) {
	o := &requestOutput{stdout: stdout}
	if name == "" {
		return o, nil
	}
	var err error
	// What a token opens is not for everybody.
	o.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	o.made = err == nil
	if errors.Is(err, fs.ErrExist) {
		o.file, err = os.OpenFile(name, os.O_WRONLY, 0)
	}
	if err != nil {
		return nil, streams.Usage("--output: %w", err)
	}
	return o, nil
}

// of is where an answer of that status goes.
func (o *requestOutput) of(status int) (io.Writer, error) {
	if o.file == nil || status >= http.StatusBadRequest {
		return o.stdout, nil
	}
	o.used = true
	if info, err := o.file.Stat(); err == nil && info.Mode().IsRegular() {
		if err := o.file.Truncate(0); err != nil {
			return nil, fmt.Errorf("the answer could not be written: %w", err)
		}
	}
	return o.file, nil
}

// close ends the file when all was written to it.
func (o *requestOutput) close() error {
	if o.file == nil || !o.used {
		return nil
	}
	err := o.file.Close()
	if o.file = nil; err != nil {
		return fmt.Errorf("the answer could not be written: %w", err)
	}
	return nil
}

// end takes away a file that nothing was written to.
func (o *requestOutput) end() {
	if o.file == nil {
		return
	}
	if o.made && !o.used {
		_ = os.Remove(o.file.Name())
	}
	_ = o.file.Close()
}
