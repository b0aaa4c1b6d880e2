#pragma once

#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>

namespace mlxx::server {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

// The bytes of one connection, be it TCP, TLS or a unix socket. At most one
// read and one write at a time, on the connection's strand.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual asio::any_io_executor executor() = 0;
  virtual asio::awaitable<ErrorCode> handshake() = 0;
  struct Count {
    ErrorCode error;
    size_t bytes = 0;
  };
  virtual asio::awaitable<Count> read_some(asio::mutable_buffer buffer) = 0;
  virtual asio::awaitable<Count> write(asio::const_buffer buffer) = 0;
  // No more is written; the peer may still be read.
  virtual void end_writing() = 0;
  // Ends what is waiting, too. May be called again.
  virtual void close() = 0;
  const std::string& peer() const {
    return peer_;
  }
  bool is_local() const {
    return is_local_;
  }

 protected:
  std::string peer_;
  bool is_local_ = false;
};

std::unique_ptr<Transport> make_transport(asio::ip::tcp::socket socket);
std::unique_ptr<Transport> make_transport(
    asio::ip::tcp::socket socket,
    asio::ssl::context& tls);
std::unique_ptr<Transport> make_transport(
    asio::local::stream_protocol::socket socket);

// TLS 1.2 or newer. bad_file names the file that can't be used.
asio::ssl::context make_tls_context(
    const std::string& certificate_file,
    const std::string& key_file);

}  // namespace mlxx::server
