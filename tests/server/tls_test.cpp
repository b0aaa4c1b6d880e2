#include <filesystem>
#include <memory>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mlxx/base/error.h"
#include "tests/server/raw_client.h"
#include "tests/server/served_fake.h"

namespace mlxx::server {

namespace {

// A key and a certificate that it signs itself.
class Certificate {
 public:
  Certificate()
      : folder_(
            std::filesystem::path(::testing::TempDir()) /
            fmt::format("mlxx_tls_{}", getpid())) {
    std::filesystem::create_directories(folder_);
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    FILE* file = fopen(key_file().c_str(), "w");
    PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
    fclose(file);
    file = fopen(certificate_file().c_str(), "w");
    PEM_write_X509(file, certificate);
    fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  ~Certificate() {
    std::filesystem::remove_all(folder_);
  }
  std::string key_file() const {
    return folder_ / "key.pem";
  }
  std::string certificate_file() const {
    return folder_ / "certificate.pem";
  }

 private:
  std::filesystem::path folder_;
};

class TlsClient {
 public:
  explicit TlsClient(int port, int newest = TLS1_3_VERSION)
      : context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_min_proto_version(context_, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context_, newest);
    SSL_CTX_set_security_level(context_, 0);
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, socket_);
    connected_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() {
    SSL_free(ssl_);
    close(socket_);
    SSL_CTX_free(context_);
    ERR_clear_error();
  }
  bool is_connected() const {
    return connected_;
  }
  void send(const std::string& bytes) {
    SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
  }
  std::string read_until(const std::string& end) {
    std::string all;
    char bytes[4096];
    int count = 0;
    while (all.find(end) == std::string::npos &&
           (count = SSL_read(ssl_, bytes, sizeof(bytes))) > 0) {
      all.append(bytes, static_cast<size_t>(count));
    }
    return all;
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  int socket_ = -1;
  bool connected_ = false;
};

}  // namespace

TEST(Tls, AnswersAndStreamsOverIt) {
  Certificate certificate;
  ServedFake fake;
  fake.http.tls_certificate_file = certificate.certificate_file();
  fake.http.tls_key_file = certificate.key_file();
  fake.http.limits.handshake_timeout = std::chrono::milliseconds(300);
  fake.start();
  EXPECT_TRUE(fake.server->addresses()[0].starts_with("https://"));
  TlsClient client(fake.server->port());
  ASSERT_TRUE(client.is_connected());
  std::string body =
      R"({"messages":[{"role":"user","content":"hello"}],"stream":true})";
  for (int i = 0; i < 2; ++i) {
    client.send(fmt::format(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Length: {}\r\n\r\n{}",
        body.size(),
        body));
    auto answer = client.read_until("\r\n0\r\n\r\n");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
    EXPECT_NE(answer.find("data: [DONE]"), std::string::npos);
  }
  TlsClient old(fake.server->port(), TLS1_1_VERSION);
  EXPECT_FALSE(old.is_connected());
  // Plain text gets no answer, and neither does silence.
  RawClient plain(fake.server->port());
  plain.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(plain.is_closed(std::chrono::seconds(3)));
  RawClient silent(fake.server->port());
  EXPECT_TRUE(silent.is_closed(std::chrono::seconds(3)));
}

TEST(Tls, FilesThatAreNoneAreNamed) {
  Certificate certificate;
  ServedFake fake;
  fake.http.tls_certificate_file = certificate.key_file();
  fake.http.tls_key_file = certificate.key_file();
  try {
    fake.start();
    FAIL() << "a key is no certificate";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_file);
    EXPECT_NE(
        std::string(error.what()).find(certificate.key_file()),
        std::string::npos);
  }
}

}  // namespace mlxx::server
