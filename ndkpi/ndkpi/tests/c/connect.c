/*
 * Refused connections, and connections over a shared endpoint. Usage: connect MODE, with MODE from
 * ADVERB_NDK_PENDING_*.
 */
#include "ndk_test.h"

struct server {
    struct side *side;
    NDK_LISTENER *listener;
    struct event incoming;
    struct sockaddr_in address;
};

static void serve(struct server *server, struct side *side)
{
    server->side = side;
    server->incoming = (struct event)EVENT;
    NDK_ADAPTER *adapter = side->adapter;
    CREATE(NDK_LISTENER, server->listener,
           adapter->Dispatch->NdkCreateListener(adapter, on_connector, &server->incoming, on_created, &done, &made));
    const NDK_LISTENER_DISPATCH *calls = server->listener->Dispatch;
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    DO(calls->NdkListen(server->listener, (PSOCKADDR)&any, sizeof any, on_status, &done));
    ULONG size = sizeof server->address;
    EXPECT(STATUS_SUCCESS, calls->NdkGetLocalAddress(server->listener, (PSOCKADDR)&server->address, &size));
    EXPECT(STATUS_INVALID_PARAMETER, calls->NdkGetLocalAddress(server->listener, NULL, NULL));
    EXPECT(STATUS_INVALID_PARAMETER, calls->NdkGetLocalAddress(server->listener, NULL, &size));
}

static NDK_CONNECTOR *create_connector(struct side *side)
{
    NDK_CONNECTOR *connector;
    CREATE(NDK_CONNECTOR, connector,
           side->adapter->Dispatch->NdkCreateConnector(side->adapter, on_created, &done, &made));
    return connector;
}

static NTSTATUS dial(struct side *side, const struct sockaddr_in *to, struct event *done)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    return side->connector->Dispatch->NdkConnect(side->connector, side->qp, (PSOCKADDR)&from, sizeof from,
                                                 (PSOCKADDR)to, sizeof *to, 1, 1, NULL, 0, on_status, done);
}

static void rejected(struct side *a, struct server *server)
{
    struct event done = EVENT;
    NTSTATUS dialling = dial(a, &server->address, &done);
    EXPECT(STATUS_SUCCESS, wait_for(&server->incoming, 1));
    NDK_CONNECTOR *incoming = server->incoming.object;
    EXPECT(STATUS_SUCCESS, incoming->Dispatch->NdkReject(incoming, "busy", 5));
    EXPECT(STATUS_CONNECTION_REFUSED, finish(&done, dialling));
    char data[256] = {0};
    ULONG size = 2;
    const NDK_CONNECTOR_DISPATCH *calls = a->connector->Dispatch;
    EXPECT(STATUS_BUFFER_TOO_SMALL, calls->NdkGetConnectionData(a->connector, NULL, NULL, data, &size));
    /* The private data of a reject has 148 bytes. The bytes behind the message are zero. */
    CHECK(size == 148 && memcmp(data, "bu\0", 3) == 0);
    EXPECT(STATUS_SUCCESS, calls->NdkGetConnectionData(a->connector, NULL, NULL, data, &size));
    CHECK(strcmp(data, "busy") == 0 && data[147] == 0);
    CLOSE(incoming, NdkCloseConnector);
}

static void paused(struct side *a, struct server *server)
{
    const NDK_LISTENER_DISPATCH *calls = server->listener->Dispatch;
    calls->NdkControlConnectEvents(server->listener, TRUE);
    struct event done = EVENT;
    NTSTATUS dialling = dial(a, &server->address, &done);
    EXPECT(STATUS_CONNECTION_REFUSED, finish(&done, dialling));
    CHECK(times(&server->incoming) == 1);
    calls->NdkControlConnectEvents(server->listener, FALSE);
}

static void over_shared_endpoint(struct side *a, struct server *server)
{
    struct side *b = server->side;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}, local, peer;
    NDK_SHARED_ENDPOINT *endpoint;
    CREATE(NDK_SHARED_ENDPOINT, endpoint,
           a->adapter->Dispatch->NdkCreateSharedEndpoint(a->adapter, (PSOCKADDR)&from, sizeof from, on_created, &done,
                                                         &made));
    ULONG size = sizeof local;
    EXPECT(STATUS_SUCCESS, endpoint->Dispatch->NdkGetLocalAddress(endpoint, (PSOCKADDR)&local, &size));

    const NDK_CONNECTOR_DISPATCH *calls = a->connector->Dispatch;
    struct event connected = EVENT, accepted = EVENT;
    NTSTATUS connecting =
        calls->NdkConnectWithSharedEndpoint(a->connector, a->qp, endpoint, (PSOCKADDR)&server->address,
                                            sizeof server->address, 1, 1, NULL, 0, on_status, &connected);
    EXPECT(STATUS_SUCCESS, wait_for(&server->incoming, 2));
    b->connector = server->incoming.object;
    size = sizeof peer;
    EXPECT(STATUS_SUCCESS, b->connector->Dispatch->NdkGetPeerAddress(b->connector, (PSOCKADDR)&peer, &size));
    CHECK(peer.sin_port == local.sin_port && peer.sin_addr.s_addr == local.sin_addr.s_addr);
    NTSTATUS accepting = b->connector->Dispatch->NdkAccept(b->connector, b->qp, 1, 1, NULL, 0, NULL, NULL, on_status,
                                                           &accepted);
    EXPECT(STATUS_SUCCESS, finish(&connected, connecting));
    DO(calls->NdkCompleteConnect(a->connector, NULL, NULL, on_status, &done));
    EXPECT(STATUS_SUCCESS, finish(&accepted, accepting));
    size = sizeof peer;
    EXPECT(STATUS_SUCCESS, calls->NdkGetPeerAddress(a->connector, (PSOCKADDR)&peer, &size));
    CHECK(peer.sin_port == server->address.sin_port);
    EXPECT(STATUS_SUCCESS, calls->NdkGetLocalAddress(a->connector, (PSOCKADDR)&peer, &size));
    CHECK(peer.sin_port == local.sin_port);

    struct event closed = EVENT;
    EXPECT(STATUS_PENDING, endpoint->Dispatch->NdkCloseSharedEndpoint(&endpoint->Header, on_closed, &closed));
    CLOSE(a->connector, NdkCloseConnector);
    a->connector = NULL;
    EXPECT(STATUS_SUCCESS, wait_for(&closed, 1));
}

int main(int argc, char **argv)
{
    ULONG mode = argc > 1 ? (ULONG)atoi(argv[1]) : ADVERB_NDK_PENDING_NEVER;
    struct side a, b;
    struct server server;
    open_side(&a, mode);
    open_side(&b, mode);
    create_qp(&a);
    create_qp(&b);
    serve(&server, &b);
    a.connector = create_connector(&a);
    rejected(&a, &server);
    paused(&a, &server);
    over_shared_endpoint(&a, &server);
    b.listener = server.listener;
    close_side(&a);
    close_side(&b);
    printf("done\n");
    return 0;
}
