#include "mlxx/server/routes.h"

namespace mlxx::server {

void add_text_routes(Router&, Services&) {}

}  // namespace mlxx::server
