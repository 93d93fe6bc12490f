// grpc-go over TCP. The messages are protobuf's well-known BytesValue and UInt32Value, and the service is
// described by hand as protoc-gen-go-grpc would describe it, so that no protoc is needed.
package main

import (
	"context"
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const grpcVersion = grpc.Version

type echoServer interface {
	echo(*wrapperspb.BytesValue) (*wrapperspb.BytesValue, error)
	slow(*wrapperspb.BytesValue) (*wrapperspb.BytesValue, error)
	fetch(*wrapperspb.UInt32Value) (*wrapperspb.BytesValue, error)
}

type grpcEcho struct{ held []byte }

func (grpcEcho) echo(request *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error) {
	return request, nil
}

func (grpcEcho) slow(request *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error) {
	time.Sleep(slow)
	return request, nil
}

func (echo grpcEcho) fetch(*wrapperspb.UInt32Value) (*wrapperspb.BytesValue, error) {
	return wrapperspb.Bytes(echo.held), nil
}

var echoService = grpc.ServiceDesc{
	ServiceName: "bench.Echo",
	HandlerType: (*echoServer)(nil),
	Methods: []grpc.MethodDesc{
		method("Echo", echoServer.echo),
		method("Slow", echoServer.slow),
		method("Fetch", echoServer.fetch),
	},
}

func method[Request any](name string, run func(echoServer, *Request) (*wrapperspb.BytesValue, error)) grpc.MethodDesc {
	handler := func(server any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := new(Request)
		if err := decode(request); err != nil {
			return nil, err
		}
		return run(server.(echoServer), request)
	}
	return grpc.MethodDesc{MethodName: name, Handler: handler}
}

func serveGRPC(setup setup) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32))
	server.RegisterService(&echoService, grpcEcho{make([]byte, setup.bytes)})
	go server.Serve(listener)
	return listener.Addr().String(), nil
}

func connectGRPC(setup setup, address string) (call, error) {
	client, err := grpc.NewClient(
		"passthrough:"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, err
	}
	payload, size := wrapperspb.Bytes(make([]byte, setup.bytes)), wrapperspb.UInt32(uint32(setup.bytes))
	return func(what what) error {
		result := new(wrapperspb.BytesValue)
		switch what {
		case fetch:
			return client.Invoke(context.Background(), "/bench.Echo/Fetch", size, result)
		case slowly:
			return client.Invoke(context.Background(), "/bench.Echo/Slow", payload, result)
		default:
			return client.Invoke(context.Background(), "/bench.Echo/Echo", payload, result)
		}
	}, nil
}
