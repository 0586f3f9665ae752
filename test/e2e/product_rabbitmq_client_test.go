//go:build e2e

package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// streamClient is a client outside the cluster of RabbitMQ's stream protocol: as much of it as the scenario needs.
// RabbitMQ's own client for Go connects from where the test runs.
type streamClient struct {
	conn net.Conn
	// advertised is the address and the port that the node tells about itself.
	advertised string
}

// The keys of commands and the response codes in RabbitMQ's PROTOCOL.adoc.
const (
	streamDeclarePublisher = 1
	streamPublish          = 2
	streamPublishConfirm   = 3
	streamSubscribe        = 7
	streamDeliver          = 8
	streamCreate           = 13
	streamMetadata         = 15
	streamPeerProperties   = 17
	streamSaslHandshake    = 18
	streamSaslAuthenticate = 19
	streamTune             = 20
	streamOpen             = 21

	streamResponse = 1 << 15
	streamOK       = 1
	streamExists   = 5
)

// errStream is returned for what the node does not do.
var errStream = errors.New("RabbitMQ refuses")

// frame is the content of a frame. Fields are appended to it, and read from its start, in the order of the protocol.
type frame []byte

// add returns the frame with further fields: integers of a fixed size, counts of 64 bits, strings, bytes, and maps.
func (f frame) add(fields ...any) frame {
	for _, field := range fields {
		switch field := field.(type) {
		case int:
			f = f.addInt(field, 8)
		case string:
			f = append(f.addInt(len(field), 2), field...)
		case []byte:
			f = append(f.addInt(len(field), 4), field...)
		case map[string]string:
			f = f.addInt(len(field), 4)
			for key, value := range field {
				f = f.add(key, value)
			}
		default:
			f, _ = binary.Append(f, binary.BigEndian, field) // integers have no errors
		}
	}
	return f
}

// addInt returns the frame with an integer of a size in bytes, which must not be negative.
func (f frame) addInt(value, size int) frame {
	all := binary.BigEndian.AppendUint64(nil, uint64(value)) //nolint:gosec // not negative
	return append(f, all[len(all)-size:]...)
}

// next reads bytes, or all that are left.
func (f *frame) next(size int) []byte {
	size = min(size, len(*f))
	read := (*f)[:size]
	*f = (*f)[size:]
	return read
}

// number reads an integer of a size in bytes.
func (f *frame) number(size int) int {
	var number int
	for _, b := range f.next(size) {
		number = number<<8 | int(b)
	}
	return number
}

func (f *frame) text() string { return string(f.next(f.number(2))) }

// dialStream connects to a node, and logs in.
func dialStream(ctx context.Context, endpoint, user, password string) (*streamClient, error) {
	conn, err := testbed.ClientDial(ctx, "tcp", endpoint)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	c := &streamClient{conn: conn}
	if err := errors.Join(conn.SetDeadline(deadline), c.login(user, password)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

func (c *streamClient) login(user, password string) error {
	if _, err := c.call(streamPeerProperties, map[string]string{}); err != nil {
		return err
	}
	if _, err := c.call(streamSaslHandshake); err != nil {
		return err
	}
	if _, err := c.call(streamSaslAuthenticate, "PLAIN", []byte("\x00"+user+"\x00"+password)); err != nil {
		return err
	}
	if _, err := c.await(streamTune); err != nil {
		return err
	}
	const maxFrame, heartbeat = uint32(1 << 20), uint32(0)
	if err := c.send(streamTune, maxFrame, heartbeat); err != nil {
		return err
	}
	opened, err := c.call(streamOpen, "/")
	if err != nil {
		return err
	}
	properties := map[string]string{}
	for range opened.number(4) {
		key := opened.text()
		properties[key] = opened.text()
	}
	c.advertised = net.JoinHostPort(properties["advertised_host"], properties["advertised_port"])
	return nil
}

// create creates a stream, unless it exists, on a number of nodes, with its leader on this one.
func (c *streamClient) create(stream string, replicas int) error {
	_, err := c.call(streamCreate, stream, map[string]string{
		"queue-leader-locator": "client-local", "initial-cluster-size": strconv.Itoa(replicas),
	})
	return err
}

// members returns the address and the port of the leader of a stream and of its other replicas.
func (c *streamClient) members(stream string) (leader string, others []string, err error) {
	const correlation, streams = uint32(1), uint32(1)
	if err := c.send(streamMetadata, correlation, streams, stream); err != nil {
		return "", nil, err
	}
	response, err := c.await(streamMetadata | streamResponse)
	if err != nil {
		return "", nil, err
	}
	response.number(4)
	nodes := map[int]string{}
	for range response.number(4) {
		reference, host, port := response.number(2), response.text(), response.number(4)
		nodes[reference] = net.JoinHostPort(host, strconv.Itoa(port))
	}
	response.number(4)
	response.text()
	if code := response.number(2); code != streamOK {
		return "", nil, fmt.Errorf("%w to describe stream %s: response %d", errStream, stream, code)
	}
	leader = nodes[response.number(2)]
	for range response.number(4) {
		others = append(others, nodes[response.number(2)])
	}
	return leader, others, nil
}

// publish writes a message to a stream, and waits until it is confirmed. RabbitMQ ignores a message with the number of
// an earlier one.
func (c *streamClient) publish(stream string, number int, message string) error {
	const publisher = uint8(1)
	if _, err := c.call(streamDeclarePublisher, publisher, "e2e", stream); err != nil {
		return err
	}
	const messages = uint32(1)
	if err := c.send(streamPublish, publisher, messages, number, []byte(message)); err != nil {
		return err
	}
	_, err := c.await(streamPublishConfirm)
	return err
}

// read returns the first messages of a stream.
func (c *streamClient) read(stream string, count int) ([]string, error) {
	const subscription, fromFirst, credit = uint8(1), uint16(1), uint16(1000)
	if _, err := c.call(streamSubscribe, subscription, stream, fromFirst, credit, map[string]string{}); err != nil {
		return nil, err
	}
	var messages []string
	for len(messages) < count {
		chunk, err := c.await(streamDeliver)
		if err != nil {
			return messages, err
		}
		const beforeEntries, afterEntries = 1 + 1 + 1, 8 + 8 + 8 + 4 + 4 + 4 + 4
		chunk.next(beforeEntries)
		chunk.number(2)
		records := chunk.number(4)
		chunk.next(afterEntries)
		for range records {
			messages = append(messages, string(chunk.next(chunk.number(4))))
		}
	}
	return messages, nil
}

// call sends a command, and returns what follows the code in its response.
func (c *streamClient) call(key uint16, fields ...any) (*frame, error) {
	if err := c.send(key, append([]any{uint32(1)}, fields...)...); err != nil {
		return nil, err
	}
	response, err := c.await(key | streamResponse)
	if err != nil {
		return nil, err
	}
	response.number(4)
	if code := response.number(2); code != streamOK && (key != streamCreate || code != streamExists) {
		return nil, fmt.Errorf("%w command %d: response %d", errStream, key, code)
	}
	return response, nil
}

func (c *streamClient) send(key uint16, fields ...any) error {
	content := frame{}.add(key, uint16(1)).add(fields...)
	_, err := c.conn.Write(frame{}.add([]byte(content)))
	return err
}

// await returns the content of the next frame with this key, and ignores others.
func (c *streamClient) await(key uint16) (*frame, error) {
	for {
		var size uint32
		if err := binary.Read(c.conn, binary.BigEndian, &size); err != nil {
			return nil, fmt.Errorf("reading a frame: %w", err)
		}
		f := make(frame, size)
		if _, err := io.ReadFull(c.conn, f); err != nil {
			return nil, fmt.Errorf("reading a frame: %w", err)
		}
		if got, _ := f.number(2), f.number(2); got == int(key) {
			return &f, nil
		}
	}
}

func (c *streamClient) close() { _ = c.conn.Close() }
