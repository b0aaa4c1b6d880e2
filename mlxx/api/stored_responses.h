#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mlxx/api/response_store.h"

// What is done with stored responses besides going on from them. `store` may be
// null: then there are none. Errors: RequestError, 404 for an unknown id.
namespace mlxx::api {

// GET /v1/responses/ID: the response as it was answered.
std::string
stored_response(ResponseStore* store, std::string_view id, int64_t unix_time);

// DELETE /v1/responses/ID.
std::string delete_stored_response(
    ResponseStore* store,
    std::string_view id,
    int64_t unix_time);

// GET /v1/responses/ID/input_items: of this turn alone.
struct ItemPage {
  int64_t limit = 20;  // 1 to 100
  bool newest_first = true;
  std::string after = {};  // id of an item; "" for the beginning
};
std::string stored_input_items(
    ResponseStore* store,
    std::string_view id,
    const ItemPage& page,
    int64_t unix_time);

}  // namespace mlxx::api
