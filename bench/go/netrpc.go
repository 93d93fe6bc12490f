// Go's net/rpc over TCP, with gob.
package main

import (
	"net"
	"net/rpc"
	"time"
)

// Echo is the service; net/rpc finds its methods by their names.
type Echo struct{ held []byte }

// Payload goes there, and comes back.
type Payload struct{ Data []byte }

// Echo gives the payload back.
func (Echo) Echo(arguments *Payload, result *Payload) error {
	result.Data = arguments.Data
	return nil
}

// Slow gives it back after a sleep.
func (Echo) Slow(arguments *Payload, result *Payload) error {
	time.Sleep(slow)
	result.Data = arguments.Data
	return nil
}

// Fetch gives what the server holds.
func (echo Echo) Fetch(_ *uint32, result *Payload) error {
	result.Data = echo.held
	return nil
}

func serveNetRPC(setup setup) (string, error) {
	server := rpc.NewServer()
	if err := server.Register(Echo{make([]byte, setup.bytes)}); err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go server.Accept(listener)
	return listener.Addr().String(), nil
}

func connectNetRPC(setup setup, address string) (call, error) {
	client, err := rpc.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	payload, size := &Payload{make([]byte, setup.bytes)}, uint32(setup.bytes)
	return func(what what) error {
		var result Payload
		switch what {
		case fetch:
			return client.Call("Echo.Fetch", &size, &result)
		case slowly:
			return client.Call("Echo.Slow", payload, &result)
		default:
			return client.Call("Echo.Echo", payload, &result)
		}
	}, nil
}
