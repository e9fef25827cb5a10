package remotestore

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxMessage bounds one message of a stream. The largest holds an event with
// all the metadata that there may be.
const maxMessage = 64 << 10

// message is one of a stream of server-sent events. Ids are not read: the
// events carry their cursors.
type message struct {
	name string
	data []byte
}

// eventReader reads text/event-stream, as far as Baton writes it.
type eventReader struct {
	lines *bufio.Reader
}

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{lines: bufio.NewReader(r)}
}

// next returns the next message that has data. A message that the stream cut
// off is not returned: it may be incomplete.
func (r *eventReader) next() (message, error) {
	var m message
	for size := 0; ; {
		line, err := r.line()
		if err != nil {
			return message{}, err
		}
		if size += len(line); size > maxMessage {
			return message{}, errors.New("a message that is too long")
		}
		if len(line) == 0 {
			if m.data != nil {
				return m, nil
			}
			m, size = message{}, 0
			continue
		}
		if line[0] == ':' {
			size -= len(line)
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			m.name = string(value)
		case "data":
			if m.data != nil {
				m.data = append(m.data, '\n')
			}
			m.data = append(m.data, value...)
		}
	}
}

// line returns one line without its end.
func (r *eventReader) line() ([]byte, error) {
	var line []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if len(line) > maxMessage {
			return nil, errors.New("a line that is too long")
		}
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), nil
}
