package spendoncetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// strictJSON decodes one value and refuses unknown members and anything
// after it.
func strictJSON(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value")
	}
	return nil
}
