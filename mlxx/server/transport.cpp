#include "mlxx/server/transport.h"

#include <tuple>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "mlxx/base/error.h"

namespace mlxx::server {

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

template <typename Stream>
class StreamTransport : public Transport {
 public:
  StreamTransport(Stream stream, std::string peer, bool is_local)
      : stream_(std::move(stream)) {
    peer_ = std::move(peer);
    is_local_ = is_local;
  }

  asio::any_io_executor executor() override {
    return stream_.get_executor();
  }

  asio::awaitable<ErrorCode> handshake() override {
    if constexpr (requires { stream_.next_layer(); }) {
      auto [error] = co_await stream_.async_handshake(
          asio::ssl::stream_base::server,
          kAwait);
      co_return error;
    }
    co_return ErrorCode();
  }

  asio::awaitable<Count> read_some(asio::mutable_buffer buffer) override {
    auto [error, bytes] = co_await stream_.async_read_some(buffer, kAwait);
    co_return Count{error, bytes};
  }

  asio::awaitable<Count> write(asio::const_buffer buffer) override {
    auto [error, bytes] = co_await asio::async_write(stream_, buffer, kAwait);
    co_return Count{error, bytes};
  }

  void end_writing() override {
    ErrorCode ignored;
    stream_.lowest_layer().shutdown(asio::socket_base::shutdown_send, ignored);
  }

  void close() override {
    ErrorCode ignored;
    stream_.lowest_layer().close(ignored);
  }

 private:
  Stream stream_;
};

std::string name_of_peer(asio::ip::tcp::socket& socket) {
  ErrorCode error;
  auto endpoint = socket.remote_endpoint(error);
  if (error) {
    return "unknown";
  }
  // A stream is made of small writes that should not wait for each other.
  socket.set_option(asio::ip::tcp::no_delay(true), error);
  return endpoint.address().to_string();
}

}  // namespace

std::unique_ptr<Transport> make_transport(asio::ip::tcp::socket socket) {
  auto peer = name_of_peer(socket);
  return std::make_unique<StreamTransport<asio::ip::tcp::socket>>(
      std::move(socket),
      std::move(peer),
      false);
}

std::unique_ptr<Transport> make_transport(
    asio::ip::tcp::socket socket,
    asio::ssl::context& tls) {
  auto peer = name_of_peer(socket);
  using Stream = asio::ssl::stream<asio::ip::tcp::socket>;
  return std::make_unique<StreamTransport<Stream>>(
      Stream(std::move(socket), tls),
      std::move(peer),
      false);
}

std::unique_ptr<Transport> make_transport(
    asio::local::stream_protocol::socket socket) {
  using Stream = asio::local::stream_protocol::socket;
  return std::make_unique<StreamTransport<Stream>>(
      std::move(socket),
      "unix",
      true);
}

asio::ssl::context make_tls_context(
    const std::string& certificate_file,
    const std::string& key_file) {
  asio::ssl::context context(asio::ssl::context::tls_server);
  ErrorCode error;
  context.set_options(
      asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
      asio::ssl::context::no_tlsv1_1);
  context.use_certificate_chain_file(certificate_file, error);
  if (error) {
    fail(
        ErrorKind::bad_file,
        certificate_file,
        "is no certificate chain in PEM, {}",
        error.message());
  }
  context.use_private_key_file(key_file, asio::ssl::context::pem, error);
  if (error) {
    fail(
        ErrorKind::bad_file,
        key_file,
        "is no private key in PEM for that certificate, {}",
        error.message());
  }
  return context;
}

}  // namespace mlxx::server
