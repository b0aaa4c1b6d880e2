#include "mlxx/server/routes.h"

namespace mlxx::server {

void add_vector_routes(Router&, Services&) {}

}  // namespace mlxx::server
